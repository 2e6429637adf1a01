package commitstatus

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

const (
	one   = "1111111111111111111111111111111111111111"
	two   = "2222222222222222222222222222222222222222"
	three = "3333333333333333333333333333333333333333"
)

func install(ready metav1.ConditionStatus, reason, message string) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", Generation: 3, UID: "i"}}
	in.Status.LastAttemptedRevision = "main@sha1:" + one
	in.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready, Reason: reason, Message: message,
		ObservedGeneration: 3}}
	return in
}

func source(kind appsv1.CommitStatusType) *appsv1.KsctlSource {
	src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "fleet",
		UID: "0c9c2e41-d2f9-4f9b-9c41-bebc1984d67a"}}
	src.Spec.CommitStatus = &appsv1.SourceCommitStatus{Type: kind}
	return src
}

func TestStatusOf(t *testing.T) {
	const context = "ksctlinstall/team/web/0c9c2e41"
	for _, c := range []struct {
		name   string
		in     *appsv1.KsctlInstall
		change func(*appsv1.KsctlInstall)
		want   Status // empty: nothing
	}{
		{"ready", install("True", "ReconciliationSucceeded", "Applied revision 1"), nil,
			Status{one, context, Success, "Applied revision 1"}},
		{"failed", install("False", "InvalidStack", "stack.yaml:\n  line 3:\twrong"), nil,
			Status{one, context, Failure, "stack.yaml: line 3: wrong"}},
		{"in progress", install("Unknown", "Progressing", "component \"a\" waits"), nil,
			Status{one, context, Pending, "is being installed"}},
		{"waits for others", install("Unknown", "DependencyNotReady", "b"), nil,
			Status{one, context, Pending, "is being installed"}},
		{"outdated condition", install("True", "", ""), func(in *appsv1.KsctlInstall) { in.Generation++ }, Status{}},
		{"no Ready condition", install("True", "", ""), func(in *appsv1.KsctlInstall) {
			in.Status.Conditions = nil
		}, Status{}},
		{"no attempted revision", install("Unknown", "", ""), func(in *appsv1.KsctlInstall) {
			in.Status.LastAttemptedRevision = ""
		}, Status{}},
		{"revision without a commit", install("True", "", ""), func(in *appsv1.KsctlInstall) {
			in.Status.LastAttemptedRevision = "latest@sha256:" + one + one[:24]
		}, Status{}},
		{"being deleted", install("True", "", ""), func(in *appsv1.KsctlInstall) {
			in.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, Status{}},
		{"another namespace", install("False", "InvalidStack", "the Secret is called x"),
			func(in *appsv1.KsctlInstall) { in.Namespace = "other" },
			Status{one, "ksctlinstall/other/web/0c9c2e41", Failure, "InvalidStack"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.in)
			}
			got, ok := StatusOf(c.in, source(appsv1.GitHubStatus))
			if ok != (c.want != Status{}) || got != c.want {
				t.Errorf("got %+v %v, want %+v", got, ok, c.want)
			}
		})
	}
}

func TestNotBeforeDelaysShortFailures(t *testing.T) {
	for _, c := range []struct {
		name, applied string
		ready         metav1.ConditionStatus
		delayed       bool
	}{
		{"ready", one, "True", false}, {"failing after it was ready", one, "False", true},
		{"failing at a new commit", two, "False", false},
		{"failing at the first commit", "", "False", false}, {"in progress", one, "Unknown", false},
	} {
		in := install(c.ready, "", "")
		in.Status.LastAppliedRevision = "main@sha1:" + c.applied
		in.Status.Conditions[0].LastTransitionTime = metav1.Time{Time: noon}
		want := time.Time{}
		if c.delayed {
			want = noon.Add(time.Minute)
		}
		if got := NotBefore(in); !got.Equal(want) {
			t.Errorf("%s: not before %s, want %s", c.name, got, want)
		}
	}
}

func TestDescriptionsAreShortened(t *testing.T) {
	for kind, limit := range map[appsv1.CommitStatusType]int{appsv1.GitHubStatus: 140, appsv1.GitLabStatus: 255,
		appsv1.GiteaStatus: 255} {
		got, _ := StatusOf(install("False", "x", strings.Repeat("ä", 300)+"\xff"), source(kind))
		if n := len([]rune(got.Description)); n != limit || !strings.HasSuffix(got.Description, "…") {
			t.Errorf("%s: %d characters, want %d: %s", kind, n, limit, got.Description)
		}
	}
}

func TestContexts(t *testing.T) {
	in, src := install("True", "", ""), source(appsv1.GitLabStatus)
	src.Spec.CommitStatus.Cluster = "prod-eu"
	if got, _ := StatusOf(in, src); got.Context != "ksctlinstall/team/web/prod-eu" {
		t.Errorf("got %s", got.Context)
	}
	in.Namespace, in.Name = strings.Repeat("n", 63), strings.Repeat("i", 253)
	a, _ := StatusOf(in, src)
	src.Spec.CommitStatus.Cluster = "prod-us"
	b, _ := StatusOf(in, src)
	if len(a.Context) != maxContextBytes || len(b.Context) != maxContextBytes || a.Context == b.Context {
		t.Errorf("got %s and %s", a.Context, b.Context)
	}
}

func TestInstallStateIgnoresProgress(t *testing.T) {
	a, b := install("Unknown", "Progressing", "1 of 2"), install("Unknown", "Progressing", "2 of 2")
	if InstallStateOf(a) != InstallStateOf(b) {
		t.Error("progress changes the state")
	}
}

func TestCommitOf(t *testing.T) {
	for revision, want := range map[string]string{
		"main@sha1:" + one: one, "a@b@sha1:" + one: one, "sha1:" + one: one,
		"": "", "main": "", "main@sha1:": "", "main@sha1:" + one[:39] + "g": "", "main@sha1:" + one[:38]: "",
		"latest@sha256:" + one: "",
	} {
		if got := CommitOf(revision); got != want {
			t.Errorf("%q: got %q, want %q", revision, got, want)
		}
	}
}
