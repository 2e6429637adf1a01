package commitstatus

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// State of an install at a commit.
type State string

// States.
const (
	// Pending: it is being installed.
	Pending State = "pending"
	// Success: it is installed, and was seen ready.
	Success State = "success"
	// Failure: it is not ready, and something has to be done or waited for.
	Failure State = "failure"
	// GivenUp: it was pending when another commit came, or when it went.
	GivenUp State = "given-up"
)

// Statement is what a commit is to say of one install.
type Statement struct {
	// Commit in full.
	Commit string
	// Context tells the statement from those of others at the commit.
	Context string
	State   State
	// Description for people: one line.
	Description string
}

// maxContext is the longest name of a status, in bytes. GitLab allows 255 characters
// (https://docs.gitlab.com/api/commits/#set-the-pipeline-status-of-a-commit).
const maxContext = 255

// maxDescription is the longest description of a status, in characters. GitHub
// answers 422 to more than 140; GitLab allows 255.
func maxDescription(kind appsv1.CommitStatusType) int {
	if kind == appsv1.GitHubStatus {
		return 140
	}
	return 255
}

// Standing is how an install stands, as far as commits are told.
type Standing struct {
	// Commit that it was last brought to; empty: nothing can be said.
	Commit          string
	State           State
	Reason, Message string
}

// StandingOf an install. What only shows progress is not in it.
func StandingOf(in *appsv1.KsctlInstall) Standing {
	ready := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	s := Standing{Commit: CommitOf(in.Status.LastAttemptedRevision), State: Pending}
	// A condition of another spec says nothing of this one.
	if s.Commit == "" || ready == nil || ready.ObservedGeneration != in.Generation || !in.DeletionTimestamp.IsZero() {
		return Standing{}
	}
	switch ready.Status {
	case metav1.ConditionTrue:
		s.State = Success
	case metav1.ConditionFalse:
		s.State = Failure
	default:
		return s
	}
	s.Reason, s.Message = ready.Reason, ready.Message
	return s
}

// Of is what is to be said of an install that reads a source with a commit status.
func Of(in *appsv1.KsctlInstall, source *appsv1.KsctlSource) (Statement, bool) {
	s := StandingOf(in)
	if s.Commit == "" {
		return Statement{}, false
	}
	text := s.Message
	switch {
	case s.State == Pending:
		text = "is being installed"
	case in.Namespace != source.Namespace:
		// Who reads the repository may not be who may read that namespace.
		text = s.Reason
	}
	return Statement{Commit: s.Commit, Context: contextOf(in, source), State: s.State,
		Description: oneLine(text, maxDescription(source.Spec.CommitStatus.Type))}, true
}

// lasting is how long an install that was ready at a commit may fail before the commit
// is told: what passes, as while the controller starts again, is not the commit's.
const lasting = time.Minute

// NotBefore is when what is to be said of an install may be said; zero: at once.
func NotBefore(in *appsv1.KsctlInstall) time.Time {
	ready := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	if ready == nil || ready.Status != metav1.ConditionFalse || CommitOf(in.Status.LastAppliedRevision) != CommitOf(in.Status.LastAttemptedRevision) {
		return time.Time{}
	}
	return ready.LastTransitionTime.Add(lasting)
}

// contextOf is the name of an install's status: as Flux makes it, with the namespace.
func contextOf(in *appsv1.KsctlInstall, source *appsv1.KsctlSource) string {
	cluster := source.Spec.CommitStatus.Cluster
	if cluster == "" {
		cluster, _, _ = strings.Cut(string(source.UID), "-")
	}
	name := strings.Join([]string{"ksctlinstall", in.Namespace, in.Name, cluster}, "/")
	if len(name) <= maxContext {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := "~" + hex.EncodeToString(sum[:8])
	return name[:maxContext-len(end)] + end
}

// CommitOf is the commit that a revision such as main@sha1:<id> names; empty if
// it names none. A branch may contain an @.
func CommitOf(revision string) string {
	_, commit, _ := strings.Cut(revision[strings.LastIndex(revision, "@")+1:], "sha1:")
	if _, err := hex.DecodeString(commit); err != nil || len(commit) != 40 {
		return ""
	}
	return commit
}

// oneLine is a text of at most so many characters, without line ends.
func oneLine(text string, limit int) string {
	runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " "))
	if len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return string(runes)
}
