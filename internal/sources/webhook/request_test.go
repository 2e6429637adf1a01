package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func uid(name string) types.UID { return types.UID(name) }

// receiverTest is a Receiver with a fake API server.
type receiverTest struct {
	*Receiver
	api     client.Client
	secrets atomic.Int64 // reads of Secrets
	writes  atomic.Int64
	down    atomic.Bool // writes fail
	mu      sync.Mutex
	lines   strings.Builder
}

// logged returns the log.
func (r *receiverTest) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines.String()
}

func newReceiverTest(t *testing.T, objects ...client.Object) *receiverTest {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	r := &receiverTest{}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&appsv1.KsctlSource{}, webhookPathField, indexWebhookPath).
		WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				opts ...client.GetOption) error {
				if _, whole := o.(*corev1.Secret); whole {
					r.secrets.Add(1)
				}
				return c.Get(ctx, key, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
				opts ...client.PatchOption) error {
				r.writes.Add(1)
				if r.down.Load() {
					return errors.New("down")
				}
				return c.Patch(ctx, o, p, opts...)
			},
		}).Build()
	log := funcr.New(func(prefix, args string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		fmt.Fprintln(&r.lines, prefix, args)
	}, funcr.Options{})
	r.Receiver = New(Options{Client: r.api, Secrets: r.api, MaxBytes: 1000, FieldOwner: "test",
		Clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0)), Log: log})
	t.Cleanup(func() {
		r.stop()
		r.throttle.waiting.Wait()
	})
	return r
}

// source returns a source whose status has the path of its token, and the Secret.
func source(name string, kind appsv1.WebhookType) (s *appsv1.KsctlSource, secret *corev1.Secret) {
	key := types.NamespacedName{Namespace: "team", Name: name}
	s = &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name, UID: uid(name)}}
	s.Spec.Git = &appsv1.GitSource{URL: "https://git.example.com/team/" + name}
	s.Spec.Webhook = &appsv1.SourceWebhook{Type: kind}
	s.Spec.Webhook.SecretRef.Name = name + "-token"
	s.Status.WebhookPath = Path(key, secretToken)
	return s, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: name + "-token", UID: "s"},
		Data: map[string][]byte{TokenKey: []byte(secretToken + "\n")}}
}

// send sends a request and returns the response.
func (r *receiverTest) send(t *testing.T, path, body string, header http.Header) (code int, text string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	req.Header = header
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Code, w.Body.String()
}

// requestedAt returns the annotation of a source.
func (r *receiverTest) requestedAt(t *testing.T, s *appsv1.KsctlSource) string {
	t.Helper()
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
		t.Fatal(err)
	}
	return s.Annotations[appsv1.RequestedAtAnnotation]
}

func pushTo(name, ref string) string {
	return fmt.Sprintf(`{"ref":%q,"object_kind":"push","repository":{"full_name":"team/%s"}}`, ref, name)
}

func hmacOf(body string) http.Header {
	return headers("X-Signature", "sha256="+sign(secretToken, body))
}

func TestPushOfEachTypeRequestsReconcile(t *testing.T) {
	body := pushTo("a", "refs/heads/main")
	for kind, header := range map[appsv1.WebhookType]http.Header{
		appsv1.GitHubWebhook: headers("X-GitHub-Event", "push", "X-Hub-Signature-256",
			"sha256="+sign(secretToken, body)),
		appsv1.GiteaWebhook:       headers("X-Gitea-Event", "push", "X-Gitea-Signature", sign(secretToken, body)),
		appsv1.GitLabWebhook:      headers("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secretToken),
		appsv1.GenericWebhook:     headers("Authorization", "Bearer "+secretToken),
		appsv1.GenericHMACWebhook: hmacOf(body),
	} {
		a, secret := source("a", kind)
		b, other := source("b", kind)
		r := newReceiverTest(t, a, secret, b, other)
		if code, text := r.send(t, a.Status.WebhookPath, body, header); code != http.StatusAccepted {
			t.Errorf("%s: %d %s", kind, code, text)
		}
		if r.requestedAt(t, a) != "1970-01-12T13:46:40Z" || r.requestedAt(t, b) != "" || r.writes.Load() != 1 {
			t.Errorf("%s: %q, %q, %d writes", kind, r.requestedAt(t, a), r.requestedAt(t, b), r.writes.Load())
		}
		if strings.Contains(r.logged(), secretToken) || !strings.Contains(r.logged(), "refs/heads/main") {
			t.Errorf("%s: logged %s", kind, r.logged())
		}
	}
}

// A sender that does not know the token gets the same response at used and at unused paths, and
// causes no requests to the API server.
func TestUnauthenticatedSendersLearnNothing(t *testing.T) {
	a, secret := source("a", appsv1.GenericHMACWebhook)
	r := newReceiverTest(t, a, secret)
	r.send(t, a.Status.WebhookPath, "{}", headers()) // the first request reads the Secret
	secrets := r.secrets.Load()
	body := pushTo("a", "refs/heads/main")
	wrong := headers("X-Signature", "sha256="+sign("another-token-of-some-length", body))
	code, text := r.send(t, a.Status.WebhookPath, body, wrong)
	for _, path := range []string{Prefix + strings.Repeat("0", 64), "/", "/hook", Prefix, a.Status.WebhookPath + "/",
		"/metrics"} {
		if c, other := r.send(t, path, body, wrong); c != code || other != text || c != http.StatusNotFound {
			t.Errorf("%s: %d %s, want %d %s", path, c, other, code, text)
		}
		if c, _ := r.send(t, path, body, hmacOf(body)); c != http.StatusNotFound {
			t.Errorf("%s with the token: %d", path, c)
		}
	}
	if r.secrets.Load() != secrets || r.writes.Load() != 0 {
		t.Errorf("%d reads, %d writes", r.secrets.Load()-secrets, r.writes.Load())
	}
	for range 100 {
		r.send(t, a.Status.WebhookPath, body, wrong)
	}
	if n := strings.Count(r.logged(), "rejected"); n != 10 {
		t.Errorf("%d lines in the log of 102 requests, want 10", n)
	}
}

func TestRequestsThatRequestNoReconcile(t *testing.T) {
	a, secret := source("a", appsv1.GenericHMACWebhook)
	suspended, other := source("b", appsv1.GenericHMACWebhook)
	suspended.Spec.Suspend = true
	short, weak := source("c", appsv1.GenericHMACWebhook)
	weak.Data[TokenKey] = []byte("short")
	short.Status.WebhookPath = Path(client.ObjectKeyFromObject(short), "short")
	forged, theirs := source("d", appsv1.GenericHMACWebhook)
	forged.Status.WebhookPath = Prefix + "d" // a status that a user wrote
	none, _ := source("e", appsv1.GenericHMACWebhook)
	none.Spec.Webhook = nil
	lost, _ := source("f", appsv1.GenericHMACWebhook) // no Secret
	r := newReceiverTest(t, a, secret, suspended, other, short, weak, forged, theirs, none, lost)
	main := "refs/heads/main"
	for name, c := range map[string]struct {
		to   *appsv1.KsctlSource
		body string
		key  string
		code int
	}{
		"another branch":     {a, pushTo("a", "refs/heads/x"), secretToken, http.StatusOK},
		"another repository": {a, pushTo("b", main), secretToken, http.StatusOK},
		"no JSON":            {a, "hello", secretToken, http.StatusBadRequest},
		"a large body": {a, pushTo("a", main) + strings.Repeat(" ", 1000), secretToken,
			http.StatusRequestEntityTooLarge},
		"a suspended source": {suspended, pushTo("b", main), secretToken, http.StatusOK},
		"a short token":      {short, pushTo("c", main), "short", http.StatusNotFound},
		"a forged path":      {forged, pushTo("d", main), secretToken, http.StatusNotFound},
		"no webhook":         {none, pushTo("e", main), secretToken, http.StatusNotFound},
		"no Secret":          {lost, pushTo("f", main), secretToken, http.StatusNotFound},
	} {
		if code, text := r.send(t, c.to.Status.WebhookPath, c.body,
			headers("X-Signature", "sha256="+sign(c.key, c.body))); code != c.code {
			t.Errorf("%s: %d %s, want %d", name, code, text, c.code)
		}
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, a.Status.WebhookPath, nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", w.Code)
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} { // health checks of load balancers
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
		if w.Code != http.StatusOK {
			t.Errorf("%s of /: %d", method, w.Code)
		}
	}
	if r.writes.Load() != 0 {
		t.Errorf("%d writes", r.writes.Load())
	}
}

func TestLogNamesWhyAPushIsIgnored(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		suspend bool
		want    []string
	}{
		"another repository": {pushTo("b", "refs/heads/main"), false,
			[]string{"team/b", "refs/heads/main", `"expected"="team/a main"`}},
		"no JSON":            {"hello", false, []string{"invalid push", "invalid character"}},
		"a suspended source": {pushTo("a", "refs/heads/main"), true, []string{"suspended"}},
	} {
		a, secret := source("a", appsv1.GenericHMACWebhook)
		a.Spec.Suspend = c.suspend
		r := newReceiverTest(t, a, secret)
		r.send(t, a.Status.WebhookPath, c.body, hmacOf(c.body))
		for _, want := range c.want {
			if !strings.Contains(r.logged(), want) {
				t.Errorf("%s: %q is not in the log: %s", name, want, r.logged())
			}
		}
	}
}

func TestReplaysRequestNoReconcile(t *testing.T) {
	a, secret := source("a", appsv1.GitHubWebhook)
	r := newReceiverTest(t, a, secret)
	body := pushTo("a", "refs/heads/main")
	for i := range 50 {
		header := headers("X-GitHub-Event", "push", "X-GitHub-Delivery", fmt.Sprint(i), "X-Hub-Signature-256",
			"sha256="+sign(secretToken, body))
		if code, _ := r.send(t, a.Status.WebhookPath, body, header); (code == http.StatusAccepted) != (i == 0) {
			t.Fatalf("request %d: %d", i, code)
		}
	}
	if r.writes.Load() != 1 {
		t.Errorf("%d writes, want 1", r.writes.Load())
	}
}

func TestNewTokenIsUsedAtOnce(t *testing.T) {
	a, secret := source("a", appsv1.GenericWebhook)
	r := newReceiverTest(t, a, secret)
	bearer := func(token string) http.Header { return headers("Authorization", "Bearer "+token) }
	if code, _ := r.send(t, a.Status.WebhookPath, "", bearer(secretToken)); code != http.StatusAccepted {
		t.Fatal(code)
	}
	const next = "the-next-token-of-some-length"
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	secret.Data[TokenKey] = []byte(next)
	if err := r.api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if code, _ := r.send(t, a.Status.WebhookPath, "", bearer(secretToken)); code != http.StatusNotFound {
		t.Errorf("the old token: %d", code)
	}
	if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
		t.Fatal(err)
	}
	a.Status.WebhookPath = Path(client.ObjectKeyFromObject(a), next)
	if err := r.api.Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if code, _ := r.send(t, a.Status.WebhookPath, "", bearer(next)); code != http.StatusAccepted {
		t.Errorf("the new token: %d", code)
	}
}

func TestPushIsRetriedWhileTheAPIServerIsDown(t *testing.T) {
	a, secret := source("a", appsv1.GenericHMACWebhook)
	r := newReceiverTest(t, a, secret)
	r.down.Store(true)
	body := pushTo("a", "refs/heads/main")
	if code, text := r.send(t, a.Status.WebhookPath, body, hmacOf(body)); code != http.StatusAccepted ||
		!strings.Contains(text, "in a moment") {
		t.Errorf("%d %s", code, text)
	}
	r.down.Store(false)
	g := &testThrottle{clock: r.Clock.(*clocktesting.FakeClock)}
	g.step(t, minInterval)
	r.throttle.waiting.Wait()
	if r.requestedAt(t, a) == "" {
		t.Error("the push is lost")
	}
}

func TestStartServesUntilItsContextEnds(t *testing.T) {
	r := New(Options{Client: newReceiverTest(t).api, Addr: "127.0.0.1:0",
		Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Log: logr.Discard()})
	if r.ready(nil) == nil {
		t.Error("ready before Start")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	for deadline := time.Now().Add(time.Minute); r.ready(nil) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not listening after a minute")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := New(Options{Addr: "127.0.0.1:no", Clock: clocktesting.NewFakeClock(time.Unix(0, 0))}).
		Start(t.Context()); err == nil {
		t.Error("no error for an invalid address")
	}
}
