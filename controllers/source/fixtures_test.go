package source

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
	"github.com/ksctl/gitops/stacks/artifact/oci"
)

var fleet = types.NamespacedName{Namespace: "team", Name: "fleet"}

// sourceTest is a source, its repository, and a controller process that can be restarted.
type sourceTest struct {
	*Steps
	t      *testing.T
	server *gitserver.Server
	repo   *gitserver.Repo
	clock  *clocktesting.FakePassiveClock
	obj    *appsv1.KsctlSource
	web    *httptest.Server
	dir    string
	limits artifact.Limits
	// capacity is the capacity of the storage in bytes; 0 is the default.
	capacity int64
	api      client.Client
	// events are the reasons of the emitted events.
	events []string
}

func newSourceTest(t *testing.T, o ...gitserver.Option) *sourceTest {
	t.Helper()
	server, repo := gitserver.ForTest(t, "fleet", o...)
	r := &sourceTest{t: t, api: fake.NewClientBuilder().Build(), server: server, repo: repo, dir: t.TempDir(),
		clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)),
		obj:   &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Name}}}
	r.obj.Spec.Git = &appsv1.GitSource{URL: repo.URL()}
	r.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.Storage.Handler().ServeHTTP(w, req)
	}))
	t.Cleanup(r.web.Close)
	r.start()
	t.Cleanup(func() { _ = r.Storage.Close() })
	return r
}

// start starts a new process with the existing storage.
func (r *sourceTest) start() {
	r.t.Helper()
	if r.Steps != nil {
		if err := r.Storage.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	served, err := storage.Open(storage.Options{Path: r.dir, AdvertisedAddr: strings.TrimPrefix(r.web.URL, "http://"),
		MaxBytes: r.capacity})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Steps = &Steps{Git: git.NewClient(git.Options{TempDir: r.t.TempDir(), Limits: git.Limits{Tree: r.limits}}),
		OCI:     oci.NewClient(oci.Options{TempDir: r.t.TempDir(), Limits: r.limits, Backoff: time.Nanosecond}),
		Secrets: r.api, Storage: served.Space(Space), Limits: r.limits, Clock: r.clock}
}

func (r *sourceTest) reconcile() reconcile.Outcome {
	r.t.Helper()
	return r.reconcileWith(r.t.Context())
}

func (r *sourceTest) reconcileWith(ctx context.Context) reconcile.Outcome {
	r.t.Helper()
	return r.Steps.Reconcile(ctx, &reconcile.Request[*appsv1.KsctlSource]{Object: r.obj,
		Event: func(_, reason, _ string) { r.events = append(r.events, reason) }})
}

// done reconciles and expects success.
func (r *sourceTest) done() reconcile.Done {
	r.t.Helper()
	out := r.reconcile()
	d, ok := out.(reconcile.Done)
	if !ok {
		r.t.Fatalf("got %T %+v, want Done", out, out)
	}
	if d.Revision != r.obj.Status.Artifact.Revision {
		r.t.Errorf("outcome has revision %s, status has %s", d.Revision, r.obj.Status.Artifact.Revision)
	}
	return d
}

// failed reconciles and expects a retry with a reason. It returns the error message.
func (r *sourceTest) failed(reason string) string {
	r.t.Helper()
	out := r.reconcile()
	f, ok := out.(reconcile.Retry)
	if !ok || f.Reason != reason {
		r.t.Fatalf("got %T %+v, want Retry with %s", out, out, reason)
	}
	return f.Err.Error()
}

// stalled reconciles and expects a terminal failure with a reason.
func (r *sourceTest) stalled(reason string) {
	r.t.Helper()
	r.stalledMessage(reason)
}

// stalledMessage does the same as stalled, and returns the error message.
func (r *sourceTest) stalledMessage(reason string) string {
	r.t.Helper()
	out := r.reconcile()
	f, ok := out.(reconcile.Stalled)
	if !ok || f.Reason != reason {
		r.t.Fatalf("got %T %+v, want Stalled with %s", out, out, reason)
	}
	return f.Err.Error()
}

func (r *sourceTest) commit(files map[string]string, o ...gitserver.CommitOption) string {
	r.t.Helper()
	id, err := r.repo.Commit(r.t.Context(), files, "change", o...)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// secret creates or replaces a Secret in the namespace of the source.
func (r *sourceTest) secret(name string, data map[string]string) {
	r.t.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name},
		Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	err := r.api.Update(r.t.Context(), s)
	if apierrors.IsNotFound(err) {
		err = r.api.Create(r.t.Context(), s)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *sourceTest) tag(name, commit string) {
	r.t.Helper()
	if err := r.repo.SetTag(r.t.Context(), name, commit); err != nil {
		r.t.Fatal(err)
	}
}

// requests returns the number of requests that f sends to the Git server.
func (r *sourceTest) requests(f func()) int64 {
	before := r.server.Requests()
	f()
	return r.server.Requests() - before
}

// content fetches the artifact in the status like an install, and returns the content of a file; ""
// if the file does not exist.
func (r *sourceTest) content(name string) string {
	r.t.Helper()
	a := r.obj.Status.Artifact
	f, err := artifact.NewFetcher(artifact.Options{Dir: r.t.TempDir(), Limits: r.limits})
	if err != nil {
		r.t.Fatal(err)
	}
	tree, err := f.Fetch(r.t.Context(), artifact.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest})
	if err != nil {
		r.t.Fatal(err)
	}
	defer tree.Release()
	b, err := os.ReadFile(filepath.Join(tree.Root, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	return string(b)
}

// storedFiles returns the names of the stored files of the source.
func (r *sourceTest) storedFiles() []string {
	r.t.Helper()
	found, err := os.ReadDir(filepath.Join(r.dir, Space, fleet.Namespace, fleet.Name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	var names []string
	for _, d := range found {
		names = append(names, d.Name())
	}
	return names
}
