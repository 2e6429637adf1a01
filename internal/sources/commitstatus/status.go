package commitstatus

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// State is the state of an install at a commit.
type State string

// States.
const (
	// Pending: the install is in progress.
	Pending State = "pending"
	// Success: the install is applied and has been observed ready.
	Success State = "success"
	// Failure: the install is not ready, until a user acts or something else changes.
	Failure State = "failure"
	// Canceled: another commit superseded it, or the install was deleted, while it was pending.
	Canceled State = "canceled"
)

// Status is the commit status of one install.
type Status struct {
	// Commit is the full commit ID.
	Commit string
	// Context identifies the status among those of the commit.
	Context string
	State   State
	// Description is one line for users.
	Description string
}

// maxContextBytes limits the context of a status. GitLab allows 255 characters
// (https://docs.gitlab.com/api/commits/#set-the-pipeline-status-of-a-commit).
const maxContextBytes = 255

// maxDescriptionLength returns the limit on the description of a status, in characters. GitHub
// responds with 422 to more than 140; GitLab allows 255.
func maxDescriptionLength(kind appsv1.CommitStatusType) int {
	if kind == appsv1.GitHubStatus {
		return 140
	}
	return 255
}

// InstallState is the part of an install's state that commit statuses show.
type InstallState struct {
	// Commit is the commit of the last attempt; empty if the state is unknown.
	Commit          string
	State           State
	Reason, Message string
}

// InstallStateOf returns the state of an install. It does not change with mere progress.
func InstallStateOf(in *appsv1.KsctlInstall) InstallState {
	ready := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	s := InstallState{Commit: CommitOf(in.Status.LastAttemptedRevision), State: Pending}
	// A condition of another generation does not describe the current spec.
	if s.Commit == "" || ready == nil || ready.ObservedGeneration != in.Generation || !in.DeletionTimestamp.IsZero() {
		return InstallState{}
	}
	switch ready.Status {
	case metav1.ConditionTrue:
		s.State = Success
	case metav1.ConditionFalse:
		s.State = Failure
	default:
		return s
	}
	s.Reason, s.Message = ready.Reason, reconcile.QuotedMessage(in.Status.Conditions)
	return s
}

// StatusOf returns the desired status of an install that reads a source with spec.commitStatus;
// false if the state of the install is unknown.
func StatusOf(in *appsv1.KsctlInstall, source *appsv1.KsctlSource) (Status, bool) {
	s := InstallStateOf(in)
	if s.Commit == "" {
		return Status{}, false
	}
	text := s.Message
	switch {
	case s.State == Pending:
		text = "is being installed"
	case in.Namespace != source.Namespace:
		// Readers of the repository may not have access to that namespace.
		text = s.Reason
	}
	return Status{Commit: s.Commit, Context: contextOf(in, source), State: s.State,
		Description: oneLine(text, maxDescriptionLength(source.Spec.CommitStatus.Type))}, true
}

// failureDelay is how long an install that was ready at a commit must fail before the failure is
// posted: a short failure, such as during a restart of the controller, is not caused by the commit.
const failureDelay = time.Minute

// NotBefore returns the earliest time to post the status of an install; zero means at once.
func NotBefore(in *appsv1.KsctlInstall) time.Time {
	ready := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	if ready == nil || ready.Status != metav1.ConditionFalse ||
		CommitOf(in.Status.LastAppliedRevision) != CommitOf(in.Status.LastAttemptedRevision) {
		return time.Time{}
	}
	return ready.LastTransitionTime.Add(failureDelay)
}

// contextOf returns the context of an install's status: in the form of Flux, with the namespace
// added.
func contextOf(in *appsv1.KsctlInstall, source *appsv1.KsctlSource) string {
	cluster := source.Spec.CommitStatus.Cluster
	if cluster == "" {
		cluster, _, _ = strings.Cut(string(source.UID), "-")
	}
	name := strings.Join([]string{"ksctlinstall", in.Namespace, in.Name, cluster}, "/")
	if len(name) <= maxContextBytes {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hashSuffix := "~" + hex.EncodeToString(sum[:8])
	return name[:maxContextBytes-len(hashSuffix)] + hashSuffix
}

// CommitOf returns the commit ID in a revision such as main@sha1:<id>; empty if there is none. The
// name of a branch may contain an @.
func CommitOf(revision string) string {
	_, commit, _ := strings.Cut(revision[strings.LastIndex(revision, "@")+1:], "sha1:")
	if _, err := hex.DecodeString(commit); err != nil || len(commit) != 40 {
		return ""
	}
	return commit
}

// oneLine returns a text on one line, shortened to at most limit characters.
func oneLine(text string, limit int) string {
	runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(text, "�")), " "))
	if len(runes) > limit {
		return string(runes[:limit-1]) + "…"
	}
	return string(runes)
}
