package publish

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
)

func TestDecide(t *testing.T) {
	ref := &fluxmeta.NamespacedObjectKindReference{APIVersion: "v1", Kind: "K", Name: "n", Namespace: "ns"}
	want := &fluxmeta.Artifact{Revision: "1@sha256:a", Digest: "sha256:a", URL: "http://x/a", Path: "a"}
	for name, c := range map[string]struct {
		change func(*sourcev1.ExternalArtifact)
		want   writes
	}{
		"as it should be":                {func(*sourcev1.ExternalArtifact) {}, writes{}},
		"another time":                   {func(o *sourcev1.ExternalArtifact) { o.Status.Artifact.LastUpdateTime = metav1.Now() }, writes{}},
		"another origin":                 {func(o *sourcev1.ExternalArtifact) { o.Status.Artifact.Metadata = map[string]string{"a": "b"} }, writes{}},
		"another digest":                 {func(o *sourcev1.ExternalArtifact) { o.Status.Artifact.Digest = "sha256:b" }, writes{status: true}},
		"another revision":               {func(o *sourcev1.ExternalArtifact) { o.Status.Artifact.Revision = "2@sha256:a" }, writes{status: true}},
		"another address":                {func(o *sourcev1.ExternalArtifact) { o.Status.Artifact.URL = "http://y/a" }, writes{status: true}},
		"no artifact":                    {func(o *sourcev1.ExternalArtifact) { o.Status.Artifact = nil }, writes{status: true}},
		"not ready":                      {func(o *sourcev1.ExternalArtifact) { o.Status.Conditions[0].Status = "False" }, writes{status: true}},
		"nothing said":                   {func(o *sourcev1.ExternalArtifact) { o.Status.Conditions = nil }, writes{status: true}},
		"said of another spec":           {func(o *sourcev1.ExternalArtifact) { o.Generation = 2 }, writes{status: true}},
		"for somebody else":              {func(o *sourcev1.ExternalArtifact) { o.Spec.SourceRef.Name = "m" }, writes{spec: true, status: true}},
		"for nobody":                     {func(o *sourcev1.ExternalArtifact) { o.Spec.SourceRef = nil }, writes{spec: true, status: true}},
		"none, and that is what decides": {nil, writes{create: true, status: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var have *sourcev1.ExternalArtifact
			if c.change != nil {
				have = &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: sourcev1.ExternalArtifactSpec{SourceRef: new(*ref)},
					Status: sourcev1.ExternalArtifactStatus{Artifact: want.DeepCopy(), Conditions: []metav1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 1}}}}
				c.change(have)
			}
			if got := decide(have, ref, want); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// rig is a publisher, an owner, and a process that can be started again.
type rig struct {
	*Publisher
	t     *testing.T
	owner *appsv1.KsctlInstall
	kept  Kept
	// requests of the API server, by verb; packed counts how often files were asked for.
	requests map[string]int
	packed   int
	served   bool
	// blind is true while the cache has nothing.
	secrets bool // may be among the files
	blind   bool
	dir     string
	api     client.WithWatch
	web     *httptest.Server
}

func newRig(t *testing.T, there ...client.Object) *rig {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(sourcev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, requests: map[string]int{}, served: true, dir: t.TempDir(),
		owner: &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shop", UID: "1"}}}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&sourcev1.ExternalArtifact{}).WithObjects(there...).Build()
	r.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { r.Storage.Handler().ServeHTTP(w, req) }))
	t.Cleanup(r.web.Close)
	r.start()
	t.Cleanup(func() { _ = r.Storage.Close() })
	return r
}

// start begins a new process.
func (r *rig) start() {
	r.t.Helper()
	if r.Publisher != nil {
		if err := r.Storage.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	served, err := storage.Open(storage.Options{Path: r.dir, AdvAddr: strings.TrimPrefix(r.web.URL, "http://")})
	if err != nil {
		r.t.Fatal(err)
	}
	count := func(verb string) { r.requests[verb]++ }
	cached := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r.blind {
				key.Name += "-unseen"
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count("create")
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			count("patch")
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			count("status")
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count("delete")
			return c.Delete(ctx, o, opts...)
		},
	})
	direct := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			count("get")
			return c.Get(ctx, key, o, opts...)
		},
	})
	r.kept = Kept{}
	r.Publisher = &Publisher{Client: cached, Direct: direct, Storage: served.Space("kind"), FieldOwner: "test", Clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)),
		Serves: func(context.Context, schema.GroupKind) (bool, error) { return r.served, nil }}
}

func (r *rig) publish(files string) (string, error) {
	r.t.Helper()
	clear(r.requests)
	r.packed = 0
	return r.Publish(r.t.Context(), &Offer{Owner: r.owner, Kind: appsv1.GroupVersion.WithKind("KsctlInstall"), Version: "1.0.0", Origin: "main@sha1:abc", Secrets: r.secrets, Content: files,
		Files: func(context.Context) (fs.FS, error) {
			r.packed++
			return fstest.MapFS{"a": {Data: []byte(files)}}, nil
		}}, &r.kept)
}

// costs publishes, and expects that many packs and exactly those requests.
func (r *rig) costs(files string, packed int, requests map[string]int) string {
	r.t.Helper()
	revision, err := r.publish(files)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.packed != packed || !maps.Equal(r.requests, requests) {
		r.t.Errorf("packed %d times, want %d; requests %v, want %v", r.packed, packed, r.requests, requests)
	}
	return revision
}

func (r *rig) object() *sourcev1.ExternalArtifact {
	r.t.Helper()
	o := &sourcev1.ExternalArtifact{}
	if err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(r.owner), o); err != nil {
		r.t.Fatal(err)
	}
	return o
}

// offers expects the ExternalArtifact to offer files, which are there.
func (r *rig) offers(revision, files string) {
	r.t.Helper()
	o := r.object()
	a := o.Status.Artifact
	if a == nil || a.Revision != revision || revision != "1.0.0@"+a.Digest || a.Metadata[originKey] != "main@sha1:abc" || !apimeta.IsStatusConditionTrue(o.Status.Conditions, "Ready") {
		r.t.Fatalf("says %+v, want revision %s", o.Status, revision)
	}
	if ref := o.Spec.SourceRef; ref == nil || ref.Kind != "KsctlInstall" || ref.APIVersion != "apps.ksctl.com/v1" || ref.Name != "shop" || ref.Namespace != "team" || !metav1.IsControlledBy(o, r.owner) {
		r.t.Errorf("is of %+v, owned by %+v", ref, o.OwnerReferences)
	}
	f, err := artifact.NewFetcher(artifact.Options{Dir: r.t.TempDir()})
	if err != nil {
		r.t.Fatal(err)
	}
	tree, err := f.Fetch(r.t.Context(), artifact.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest})
	if err != nil {
		r.t.Fatal(err)
	}
	defer tree.Release()
	b, err := os.ReadFile(filepath.Join(tree.Root, "a"))
	if err != nil || string(b) != files {
		r.t.Errorf("got %q %v, want %q", b, err, files)
	}
}

var none = map[string]int{}

func TestPublishes(t *testing.T) {
	r := newRig(t)
	first := r.costs("1", 1, map[string]int{"create": 1, "status": 1})
	r.offers(first, "1")
	if again := r.costs("1", 0, none); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	second := r.costs("2", 1, map[string]int{"status": 1})
	r.offers(second, "2")
	if second == first {
		t.Error("another content needs another revision")
	}
	back := r.costs("1", 1, map[string]int{"status": 1})
	if back != first {
		t.Errorf("the same files have the revision %s, then %s", first, back)
	}
	r.offers(first, "1")
}

func TestPublishesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(r *rig) error
		packed   int
		requests map[string]int
	}{
		"after a restart": {func(r *rig) error { r.start(); return nil }, 1, none},
		"with an empty disk": {func(r *rig) error {
			r.dir = r.t.TempDir()
			r.start()
			return nil
		}, 1, none},
		"what was deleted": {func(r *rig) error { return r.api.Delete(r.t.Context(), r.object()) }, 0, map[string]int{"get": 1, "create": 1, "status": 1}},
		"while the cache has not seen it": {func(r *rig) error {
			r.blind = true
			return nil
		}, 0, map[string]int{"get": 1}},
		"after a restart before the cache has seen it": {func(r *rig) error {
			r.blind = true
			r.start()
			return nil
		}, 1, map[string]int{"create": 1, "get": 1}},
		"what somebody changed": {func(r *rig) error {
			o := r.object()
			o.Spec.SourceRef.Name = "other"
			return r.api.Update(r.t.Context(), o)
		}, 0, map[string]int{"patch": 1, "status": 1}},
		"what somebody withdrew": {func(r *rig) error {
			o := r.object()
			o.Status.Artifact = nil
			return r.api.Status().Update(r.t.Context(), o)
		}, 0, map[string]int{"status": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			revision := r.costs("1", 1, map[string]int{"create": 1, "status": 1})
			if err := c.change(r); err != nil {
				t.Fatal(err)
			}
			r.costs("1", c.packed, c.requests)
			r.offers(revision, "1")
		})
	}
}

func TestPublishesNothing(t *testing.T) {
	theirs := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shop",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Other", Name: "x", UID: "2", Controller: new(true)}}}}
	for _, blind := range []bool{false, true} {
		r := newRig(t, theirs.DeepCopy())
		r.blind = blind
		_, err := r.publish("1")
		if owned, ok := errors.AsType[*OwnedError](err); !ok || owned.By != "Other x" {
			t.Errorf("over somebody else's: %v", err)
		}
		if got := r.object(); got.Status.Artifact != nil || got.Spec.SourceRef != nil {
			t.Errorf("it was changed: %+v", got)
		}
		if err := r.Withdraw(t.Context(), r.owner, &r.kept); err != nil {
			t.Error(err)
		}
		r.object() // is there
	}
	r := newRig(t)
	r.served = false
	_, err := r.publish("1")
	if e, ok := errors.AsType[*sourceref.Error](err); !ok || e.Reason != sourceref.NotServed || r.packed > 0 {
		t.Errorf("without the kind: %v", err)
	}
}

func TestWithdraws(t *testing.T) {
	r := newRig(t)
	r.costs("1", 1, map[string]int{"create": 1, "status": 1})
	url := r.object().Status.Artifact.URL
	for range 2 {
		if err := r.Withdraw(t.Context(), r.owner, &r.kept); err != nil {
			t.Fatal(err)
		}
		if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(r.owner), &sourcev1.ExternalArtifact{}); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("is there: %v", err)
		}
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("what was offered: %s %v", resp.Status, err)
		}
	}
	r.costs("1", 1, map[string]int{"create": 1, "status": 1})
	r.served = false // its definition went, and it with it
	if err := r.Withdraw(t.Context(), r.owner, &r.kept); err != nil {
		t.Error(err)
	}
}
