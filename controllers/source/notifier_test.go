package source

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

const (
	abc         = "abcabcabcabcabcabcabcabcabcabcabcabcabca"
	def         = "defdefdefdefdefdefdefdefdefdefdefdefdefd"
	statusToken = "the-token-of-team"
)

// notifierTest is a source with installs, and a fake GitLab that accepts one token.
type notifierTest struct {
	*Notifier
	t         *testing.T
	api       client.Client
	clock     *clocktesting.FakePassiveClock
	events    *record.FakeRecorder
	leaderErr error

	mu         sync.Mutex
	requests   []string // requests with the token, and "no" for requests without it
	code       int      // status code of responses; 0 is 201
	retryAfter string
}

func newNotifierTest(t *testing.T) *notifierTest {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := &notifierTest{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)),
		events: record.NewFakeRecorder(100)}
	r.api = fake.NewClientBuilder().WithScheme(scheme).
		WithStatusSubresource(&appsv1.KsctlSource{}, &appsv1.KsctlInstall{}).
		WithIndex(&appsv1.KsctlInstall{}, bySource, func(o client.Object) []string {
			key, _ := sourceOf(o.(*appsv1.KsctlInstall))
			return []string{key.String()}
		}).Build()
	r.Notifier = &Notifier{Client: r.api, Steps: &Steps{Secrets: r.api}, Events: r.events,
		CheckLeader: func() error { return r.leaderErr }, Count: func(string, string) {}, Clock: r.clock}
	server := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(server.Close)
	src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Name,
		UID: "0c9c2e41-1"}}
	src.Spec.Git = &appsv1.GitSource{URL: server.URL + "/group/fleet.git"}
	src.Spec.CommitStatus = &appsv1.SourceCommitStatus{Type: appsv1.GitLabStatus,
		SecretRef: fluxmeta.LocalObjectReference{Name: "status"}}
	src.Status.Artifact = &fluxmeta.Artifact{Revision: "main@sha1:" + abc}
	r.create(src)
	return r
}

func (r *notifierTest) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Header.Get("Authorization") != "Bearer "+statusToken {
		r.requests = append(r.requests, "no")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, _ := io.ReadAll(req.Body)
	r.requests = append(r.requests,
		strings.TrimPrefix(req.URL.EscapedPath(), "/api/v4/projects/group%2Ffleet/statuses/")[:3]+" "+string(body))
	if r.retryAfter != "" {
		w.Header().Set("Retry-After", r.retryAfter)
	}
	w.WriteHeader(max(r.code, http.StatusCreated))
}

func (r *notifierTest) create(o client.Object) {
	r.t.Helper()
	if err := r.api.Create(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
	if err := r.api.Status().Update(r.t.Context(), o); err != nil && o.GetName() != "status" {
		r.t.Fatal(err)
	}
}

// setInstall creates or updates an install with a Ready condition at a commit.
func (r *notifierTest) setInstall(namespace, name, commit string, ready metav1.ConditionStatus, message string) {
	r.t.Helper()
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(namespace + name)}}
	in.Spec.SourceRef = appsv1.SourceRef{Kind: appsv1.KsctlSourceKind, Namespace: fleet.Namespace, Name: fleet.Name}
	if err := r.api.Create(r.t.Context(), in); err != nil {
		if err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(in), in); err != nil {
			r.t.Fatal(err)
		}
	}
	in.Status.LastAttemptedRevision = "main@sha1:" + commit
	in.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready, Reason: "Because", Message: message,
		ObservedGeneration: in.Generation}}
	if err := r.api.Status().Update(r.t.Context(), in); err != nil {
		r.t.Fatal(err)
	}
}

// secret creates or replaces the Secret with the token.
func (r *notifierTest) secret(token string) {
	r.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "status"},
		Data: map[string][]byte{"token": []byte(token)}}
	if r.api.Update(r.t.Context(), s) != nil {
		r.create(s)
	}
}

// reconcileAll reconciles until no commit status is due. It returns the requests, and the delay of
// the next reconcile.
func (r *notifierTest) reconcileAll() ([]string, time.Duration) {
	r.t.Helper()
	r.requests = nil
	for range 100 {
		next, err := r.reconcile(r.t.Context(), fleet)
		if err != nil {
			r.t.Fatal(err)
		}
		if next != time.Millisecond {
			return r.requests, next
		}
	}
	r.t.Fatal("100 reconciles are not enough")
	return nil, 0
}

// newEvents returns the events since the last call.
func (r *notifierTest) newEvents() (out []string) {
	for len(r.events.Events) > 0 {
		out = append(out, <-r.events.Events)
	}
	for _, e := range out {
		if strings.Contains(e, statusToken) || !strings.HasPrefix(e, "Warning CommitStatusFailed ") {
			r.t.Errorf("event %q", e)
		}
	}
	return out
}

func (r *notifierTest) expect(what string, asked []string, wait time.Duration) {
	r.t.Helper()
	got, w := r.reconcileAll()
	if fmt.Sprint(got) != fmt.Sprint(asked) || w != wait {
		r.t.Errorf("%s: requests %q, then waits %s, want %q and %s", what, got, w, asked, wait)
	}
}

const web = `abc {"state":"success","name":"ksctlinstall/team/web/0c9c2e41","description":"fine"}`

func TestInvalidTokenIsReportedOnceAndRetried(t *testing.T) {
	r := newNotifierTest(t)
	r.setInstall("team", "web", abc, "True", "fine")
	r.expect("without a Secret", nil, 10*time.Second)
	if e := r.newEvents(); len(e) != 1 || !strings.Contains(e[0], "team/status") ||
		!strings.Contains(e[0], "spec.commitStatus.secretRef") {
		t.Errorf("events %q", e)
	}
	for _, bad := range []string{"", "\n", "two lines\nof it"} {
		r.secret(bad)
		r.expect(fmt.Sprintf("with token %q", bad), nil, 10*time.Second)
		if e := r.newEvents(); len(e) != 1 || !strings.Contains(e[0], "token") {
			t.Errorf("events %q", e)
		}
	}
	r.secret("another")
	r.expect("with a wrong token", []string{"no"}, 10*time.Second)
	if e := r.newEvents(); len(e) != 1 || !strings.Contains(e[0], "the Secret team/status") ||
		!strings.Contains(e[0], "scope api") {
		t.Errorf("events %q", e)
	}
	r.expect("before the backoff ends", nil, 10*time.Second)
	r.clock.SetTime(r.clock.Now().Add(10 * time.Second))
	r.expect("after the backoff", []string{"no"}, 20*time.Second)
	if e := r.newEvents(); len(e) != 0 {
		t.Errorf("repeated events: %q", e)
	}
	r.secret(statusToken + "\n")
	r.expect("with the correct token", []string{web}, 0)
	r.expect("without a change", nil, 0)
	if e := r.newEvents(); len(e) != 0 {
		t.Errorf("events %q", e)
	}
}

func TestRetryAfterIsRespected(t *testing.T) {
	r := newNotifierTest(t)
	r.secret(statusToken)
	r.setInstall("team", "web", abc, "True", "fine")
	r.code, r.retryAfter = 429, "600"
	r.expect("rate limited", []string{web}, 10*time.Minute)
	r.setInstall("team", "web", abc, "False", "broken")
	r.setInstall("team", "db", abc, "True", "fine")
	r.expect("with more commit statuses", nil, 10*time.Minute)
	r.clock.SetTime(r.clock.Now().Add(10 * time.Minute))
	r.code, r.retryAfter = 0, ""
	r.expect("after Retry-After, only the newest", []string{strings.Replace(web, "/web/", "/db/", 1),
		`abc {"state":"failed","name":"ksctlinstall/team/web/0c9c2e41","description":"broken"}`}, 0)
	if e := r.newEvents(); len(e) != 0 {
		t.Errorf("events %q", e)
	}
}

func TestOtherNamespacesDoNotLeak(t *testing.T) {
	r := newNotifierTest(t)
	r.secret(statusToken)
	r.setInstall("other", "web", abc, "False", "the name of a Secret")
	r.setInstall("team", "web", def, "True", "of another source")
	r.expect("other namespace and other commit",
		[]string{`abc {"state":"failed","name":"ksctlinstall/other/web/0c9c2e41","description":"Because"}`}, 0)
	// A Secret of the same name in another namespace is not used.
	if err := r.api.Delete(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "status"}}); err != nil {
		t.Fatal(err)
	}
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "status"},
		Data: map[string][]byte{"token": []byte(statusToken)}})
	r.setInstall("team", "web", abc, "True", "fine")
	r.expect("without its own Secret", nil, 10*time.Second)
}

func TestOnlyLeaderWritesStatuses(t *testing.T) {
	r := newNotifierTest(t)
	r.secret(statusToken)
	r.setInstall("team", "web", abc, "True", "fine")
	r.leaderErr = errors.New("the lease was last renewed a minute ago")
	r.expect("not the leader", nil, leaderRetryInterval)
	r.leaderErr = nil
	r.expect("leader", []string{web}, 0)
}

func TestChangesOfCommitStatusSpec(t *testing.T) {
	r := newNotifierTest(t)
	r.secret(statusToken)
	r.setInstall("team", "web", abc, "True", "fine")
	change := func(f func(*appsv1.KsctlSource)) {
		t.Helper()
		src := &appsv1.KsctlSource{}
		if err := r.api.Get(t.Context(), fleet, src); err != nil {
			t.Fatal(err)
		}
		f(src)
		if err := r.api.Update(t.Context(), src); err != nil {
			t.Fatal(err)
		}
	}
	change(func(s *appsv1.KsctlSource) { s.Spec.Suspend = true })
	r.expect("suspended", nil, 0)
	change(func(s *appsv1.KsctlSource) { s.Spec.Suspend = false })
	r.expect("resumed", []string{web}, 0)
	change(func(s *appsv1.KsctlSource) { s.Spec.CommitStatus.Cluster = "prod" })
	r.expect("other cluster name", []string{strings.Replace(web, "0c9c2e41", "prod", 1)}, 0)
	change(func(s *appsv1.KsctlSource) { s.Spec.CommitStatus.Address = "https://git.example.com/fleet" })
	r.expect("invalid address", nil, 10*time.Second)
	if e := r.newEvents(); len(e) != 1 ||
		!strings.Contains(e[0], "https://git.example.com/fleet is not the URL of a repository") {
		t.Errorf("events %q", e)
	}
	change(func(s *appsv1.KsctlSource) { s.Spec.CommitStatus = nil })
	r.expect("no commit status", nil, 0)
	if _, kept := r.states.Drop(fleet); kept {
		t.Error("state of a source without commit status is kept")
	}
}

func TestCommitStatusProxyAndCA(t *testing.T) {
	r := newNotifierTest(t)
	r.secret(statusToken)
	r.setInstall("team", "web", abc, "True", "fine")
	var through []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		through = append(through, req.URL.Path)
		r.serve(w, req)
	}))
	t.Cleanup(proxy.Close)
	src := &appsv1.KsctlSource{}
	if err := r.api.Get(t.Context(), fleet, src); err != nil {
		t.Fatal(err)
	}
	src.Spec.Git.URL = "http://git.example.com/group/fleet.git"
	src.Spec.Git.ProxySecretRef = &fluxmeta.LocalObjectReference{Name: "proxy"}
	if err := r.api.Update(t.Context(), src); err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "proxy"},
		Data: map[string][]byte{"address": []byte(proxy.URL)}}
	if err := r.api.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r.expect("through the proxy", []string{web}, 0)
	if len(through) != 1 {
		t.Errorf("requests through the proxy: %v", through)
	}
	secret := &corev1.Secret{}
	if err := r.api.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: "status"}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["ca.crt"] = []byte("no certificate")
	if err := r.api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	r.setInstall("team", "web", abc, "False", "broken")
	r.expect("with an invalid CA", nil, 10*time.Second)
	if e := r.newEvents(); len(e) != 1 || !strings.Contains(e[0], "ca.crt") {
		t.Errorf("events %q", e)
	}
}

func TestNotifierPredicates(t *testing.T) {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}
	in.Spec.SourceRef = appsv1.SourceRef{Kind: appsv1.KsctlSourceKind, Name: "fleet"}
	in.Status.LastAttemptedRevision = "main@sha1:" + abc
	in.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "Unknown", Message: "1 of 2"}}
	if got := sourceRequests(t.Context(), in); len(got) != 1 || got[0].NamespacedName != fleet {
		t.Errorf("got %v", got)
	}
	progress, ready := in.DeepCopy(), in.DeepCopy()
	progress.Status.Conditions[0].Message, ready.Status.Conditions[0].Status = "2 of 2", "True"
	if installStateChanged(event.UpdateEvent{ObjectOld: in, ObjectNew: progress}) ||
		!installStateChanged(event.UpdateEvent{ObjectOld: in, ObjectNew: ready}) {
		t.Error("progress is accepted, or its end is not")
	}
	in.Spec.SourceRef.Kind = "GitRepository"
	if got := sourceRequests(t.Context(), in); got != nil {
		t.Errorf("Flux source: got %v", got)
	}
	src := &appsv1.KsctlSource{}
	offers, fetched := src.DeepCopy(), src.DeepCopy()
	offers.Status.Artifact, fetched.Status.ObservedContent = &fluxmeta.Artifact{Revision: "main@sha1:" + abc}, "x"
	if !statusesChanged(event.UpdateEvent{ObjectOld: src, ObjectNew: offers}) ||
		statusesChanged(event.UpdateEvent{ObjectOld: src, ObjectNew: fetched}) {
		t.Error("another commit is not accepted, or another change is")
	}
}
