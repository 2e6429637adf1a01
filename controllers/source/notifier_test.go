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
	ctrl "sigs.k8s.io/controller-runtime"
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

// tellRig is a source with installs, and a GitLab that takes a token.
type tellRig struct {
	*Teller
	t      *testing.T
	api    client.Client
	clock  *clocktesting.FakePassiveClock
	events *record.FakeRecorder
	leads  error

	mu    sync.Mutex
	asked []string // what was asked with the token, and "no" without it
	code  int      // of the answer; 0: as the token is
	retry string
}

func newTellRig(t *testing.T) *tellRig {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := &tellRig{t: t, clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)), events: record.NewFakeRecorder(100)}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&appsv1.KsctlSource{}, &appsv1.KsctlInstall{}).
		WithIndex(&appsv1.KsctlInstall{}, byOurs, func(o client.Object) []string {
			key, _ := sourceOf(o)
			return []string{key.String()}
		}).Build()
	r.Teller = NewTeller(r.api, &Steps{Secrets: r.api}, r.events, func() error { return r.leads }, func(string, string) {}, r.clock)
	server := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(server.Close)
	src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Name, UID: "0c9c2e41-1"}}
	src.Spec.Git = &appsv1.GitSource{URL: server.URL + "/group/fleet.git"}
	src.Spec.CommitStatus = &appsv1.SourceCommitStatus{Type: appsv1.GitLabStatus, SecretRef: fluxmeta.LocalObjectReference{Name: "status"}}
	src.Status.Artifact = &fluxmeta.Artifact{Revision: "main@sha1:" + abc}
	r.create(src)
	return r
}

func (r *tellRig) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Header.Get("Authorization") != "Bearer "+statusToken {
		r.asked = append(r.asked, "no")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	body, _ := io.ReadAll(req.Body)
	r.asked = append(r.asked, strings.TrimPrefix(req.URL.EscapedPath(), "/api/v4/projects/group%2Ffleet/statuses/")[:3]+" "+string(body))
	if r.retry != "" {
		w.Header().Set("Retry-After", r.retry)
	}
	w.WriteHeader(max(r.code, http.StatusCreated))
}

func (r *tellRig) create(o client.Object) {
	r.t.Helper()
	if err := r.api.Create(r.t.Context(), o); err != nil {
		r.t.Fatal(err)
	}
	if err := r.api.Status().Update(r.t.Context(), o); err != nil && o.GetName() != "status" {
		r.t.Fatal(err)
	}
}

// stands has an install of a namespace be so at a commit.
func (r *tellRig) stands(namespace, name, commit string, ready metav1.ConditionStatus, message string) {
	r.t.Helper()
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
	in.Spec.SourceRef = appsv1.SourceRef{Kind: Kind, Namespace: fleet.Namespace, Name: fleet.Name}
	if err := r.api.Create(r.t.Context(), in); err != nil {
		if err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(in), in); err != nil {
			r.t.Fatal(err)
		}
	}
	in.Status.LastAttemptedRevision = "main@sha1:" + commit
	in.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready, Reason: "Because", Message: message, ObservedGeneration: in.Generation}}
	if err := r.api.Status().Update(r.t.Context(), in); err != nil {
		r.t.Fatal(err)
	}
}

// secret makes the Secret, or changes it.
func (r *tellRig) secret(token string) {
	r.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "status"}, Data: map[string][]byte{"token": []byte(token)}}
	if r.api.Update(r.t.Context(), s) != nil {
		r.create(s)
	}
}

// work reconciles until there is nothing to do now, and gives what was asked meanwhile
// and when there may be more.
func (r *tellRig) work() ([]string, time.Duration) {
	r.t.Helper()
	r.asked = nil
	for range 100 {
		res, err := r.Reconcile(r.t.Context(), ctrl.Request{NamespacedName: fleet})
		if err != nil {
			r.t.Fatal(err)
		}
		if res.RequeueAfter != time.Millisecond {
			return r.asked, res.RequeueAfter
		}
	}
	r.t.Fatal("no end")
	return nil, 0
}

// told are the events since.
func (r *tellRig) told() (out []string) {
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

func (r *tellRig) expect(what string, asked []string, wait time.Duration) {
	r.t.Helper()
	got, w := r.work()
	if fmt.Sprint(got) != fmt.Sprint(asked) || w != wait {
		r.t.Errorf("%s: asked %q and waits %s, want %q and %s", what, got, w, asked, wait)
	}
}

const web = `abc {"state":"success","name":"ksctlinstall/team/web/0c9c2e41","description":"fine"}`

func TestAWrongTokenIsToldAndBlocksNothing(t *testing.T) {
	r := newTellRig(t)
	r.stands("team", "web", abc, "True", "fine")
	r.expect("without a Secret", nil, 10*time.Second)
	if e := r.told(); len(e) != 1 || !strings.Contains(e[0], "team/status") || !strings.Contains(e[0], "spec.commitStatus.secretRef") {
		t.Errorf("told %q", e)
	}
	for _, bad := range []string{"", "\n", "two lines\nof it"} {
		r.secret(bad)
		r.expect("with "+bad, nil, 10*time.Second)
		if e := r.told(); len(e) != 1 || !strings.Contains(e[0], "token") {
			t.Errorf("told %q", e)
		}
	}
	r.secret("another")
	r.expect("with a wrong token", []string{"no"}, 10*time.Second)
	if e := r.told(); len(e) != 1 || !strings.Contains(e[0], "the Secret team/status") || !strings.Contains(e[0], "scope api") {
		t.Errorf("told %q", e)
	}
	r.expect("before it is time", nil, 10*time.Second)
	r.clock.SetTime(r.clock.Now().Add(10 * time.Second))
	r.expect("in time", []string{"no"}, 20*time.Second)
	if e := r.told(); len(e) != 0 {
		t.Errorf("told again: %q", e)
	}
	r.secret(statusToken + "\n")
	r.expect("with the right one", []string{web}, 0)
	r.expect("again", nil, 0)
	if e := r.told(); len(e) != 0 {
		t.Errorf("told %q", e)
	}
}

func TestAServerThatWantsToBeLeftAlone(t *testing.T) {
	r := newTellRig(t)
	r.secret(statusToken)
	r.stands("team", "web", abc, "True", "fine")
	r.code, r.retry = 429, "600"
	r.expect("at first", []string{web}, 10*time.Minute)
	r.stands("team", "web", abc, "False", "broken")
	r.stands("team", "db", abc, "True", "fine")
	r.expect("with more to say", nil, 10*time.Minute)
	r.clock.SetTime(r.clock.Now().Add(10 * time.Minute))
	r.code, r.retry = 0, ""
	r.expect("afterwards the newest", []string{strings.Replace(web, "/web/", "/db/", 1),
		`abc {"state":"failed","name":"ksctlinstall/team/web/0c9c2e41","description":"broken"}`}, 0)
	if e := r.told(); len(e) != 0 {
		t.Errorf("told %q", e)
	}
}

func TestWhatIsNotOurs(t *testing.T) {
	r := newTellRig(t)
	r.secret(statusToken)
	r.stands("other", "web", abc, "False", "the name of a Secret")
	r.stands("team", "web", def, "True", "of another source")
	r.expect("another namespace and another commit", []string{`abc {"state":"failed","name":"ksctlinstall/other/web/0c9c2e41","description":"Because"}`}, 0)
	// A Secret of the same name elsewhere is nobody's business.
	if err := r.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "status"}}); err != nil {
		t.Fatal(err)
	}
	r.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "status"}, Data: map[string][]byte{"token": []byte(statusToken)}})
	r.stands("team", "web", abc, "True", "fine")
	r.expect("without its own Secret", nil, 10*time.Second)
}

func TestWhoMayNotLeadSaysNothing(t *testing.T) {
	r := newTellRig(t)
	r.secret(statusToken)
	r.stands("team", "web", abc, "True", "fine")
	r.leads = errors.New("the lease was last renewed a minute ago")
	r.expect("paused", nil, leadsAgain)
	r.leads = nil
	r.expect("leading", []string{web}, 0)
}

func TestWhatASpecAsksFor(t *testing.T) {
	r := newTellRig(t)
	r.secret(statusToken)
	r.stands("team", "web", abc, "True", "fine")
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
	r.expect("another name", []string{strings.Replace(web, "0c9c2e41", "prod", 1)}, 0)
	change(func(s *appsv1.KsctlSource) { s.Spec.CommitStatus.Address = "https://git.example.com/fleet" })
	r.expect("no repository", nil, 10*time.Second)
	if e := r.told(); len(e) != 1 || !strings.Contains(e[0], "https://git.example.com/fleet names no repository") {
		t.Errorf("told %q", e)
	}
	change(func(s *appsv1.KsctlSource) { s.Spec.CommitStatus = nil })
	r.expect("none", nil, 0)
	if len(r.Teller.told) != 0 {
		t.Error("remembers a source that has no commit status")
	}
}

func TestAProxyAndAnAuthority(t *testing.T) {
	r := newTellRig(t)
	r.secret(statusToken)
	r.stands("team", "web", abc, "True", "fine")
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
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: "proxy"}, Data: map[string][]byte{"address": []byte(proxy.URL)}}
	if err := r.api.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r.expect("through the proxy", []string{web}, 0)
	if len(through) != 1 {
		t.Errorf("through the proxy went %v", through)
	}
	secret := &corev1.Secret{}
	if err := r.api.Get(t.Context(), client.ObjectKey{Namespace: fleet.Namespace, Name: "status"}, secret); err != nil {
		t.Fatal(err)
	}
	secret.Data["ca.crt"] = []byte("no certificate")
	if err := r.api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	r.stands("team", "web", abc, "False", "broken")
	r.expect("with an authority that is none", nil, 10*time.Second)
	if e := r.told(); len(e) != 1 || !strings.Contains(e[0], "ca.crt") {
		t.Errorf("told %q", e)
	}
}

func TestWhatWakesTheTeller(t *testing.T) {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"}}
	in.Spec.SourceRef = appsv1.SourceRef{Kind: Kind, Name: "fleet"}
	in.Status.LastAttemptedRevision = "main@sha1:" + abc
	in.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "Unknown", Message: "1 of 2"}}
	if got := ofInstall(t.Context(), in); len(got) != 1 || got[0].NamespacedName != fleet {
		t.Errorf("got %v", got)
	}
	progress, ready := in.DeepCopy(), in.DeepCopy()
	progress.Status.Conditions[0].Message, ready.Status.Conditions[0].Status = "2 of 2", "True"
	if standsOtherwise(event.UpdateEvent{ObjectOld: in, ObjectNew: progress}) || !standsOtherwise(event.UpdateEvent{ObjectOld: in, ObjectNew: ready}) {
		t.Error("progress wakes, or its end does not")
	}
	in.Spec.SourceRef.Kind = "GitRepository"
	if got := ofInstall(t.Context(), in); got != nil {
		t.Errorf("of Flux: got %v", got)
	}
	src := &appsv1.KsctlSource{}
	offers, fetched := src.DeepCopy(), src.DeepCopy()
	offers.Status.Artifact, fetched.Status.ObservedContent = &fluxmeta.Artifact{Revision: "main@sha1:" + abc}, "x"
	if !concernsCommits(event.UpdateEvent{ObjectOld: src, ObjectNew: offers}) || concernsCommits(event.UpdateEvent{ObjectOld: src, ObjectNew: fetched}) {
		t.Error("another commit does not wake, or something else does")
	}
}
