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

func TestDecideWrites(t *testing.T) {
	ref := &fluxmeta.NamespacedObjectKindReference{APIVersion: "v1", Kind: "K", Name: "n", Namespace: "ns"}
	want := &fluxmeta.Artifact{Revision: "1@sha256:a", Digest: "sha256:a", URL: "http://x/a", Path: "a"}
	for name, c := range map[string]struct {
		change func(*sourcev1.ExternalArtifact)
		want   requiredWrites
	}{
		"up to date": {func(*sourcev1.ExternalArtifact) {}, requiredWrites{}},
		"other update time": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Artifact.LastUpdateTime = metav1.Now()
		}, requiredWrites{}},
		"other metadata": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Artifact.Metadata = map[string]string{"a": "b"}
		}, requiredWrites{}},
		"other digest": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Artifact.Digest = "sha256:b"
		}, requiredWrites{status: true}},
		"other revision": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Artifact.Revision = "2@sha256:a"
		}, requiredWrites{status: true}},
		"other URL": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Artifact.URL = "http://y/a"
		}, requiredWrites{status: true}},
		"no artifact": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Artifact = nil
		}, requiredWrites{status: true}},
		"not ready": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Conditions[0].Status = "False"
		}, requiredWrites{status: true}},
		"no Ready condition": {func(o *sourcev1.ExternalArtifact) {
			o.Status.Conditions = nil
		}, requiredWrites{status: true}},
		"outdated Ready condition": {func(o *sourcev1.ExternalArtifact) {
			o.Generation = 2
		}, requiredWrites{status: true}},
		"other sourceRef": {func(o *sourcev1.ExternalArtifact) {
			o.Spec.SourceRef.Name = "m"
		}, requiredWrites{spec: true, status: true}},
		"no sourceRef": {func(o *sourcev1.ExternalArtifact) {
			o.Spec.SourceRef = nil
		}, requiredWrites{spec: true, status: true}},
		"does not exist": {nil, requiredWrites{create: true, status: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var have *sourcev1.ExternalArtifact
			if c.change != nil {
				have = &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Generation: 1},
					Spec: sourcev1.ExternalArtifactSpec{SourceRef: new(*ref)},
					Status: sourcev1.ExternalArtifactStatus{Artifact: want.DeepCopy(),
						Conditions: []metav1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 1}}}}
				c.change(have)
			}
			if got := decideWrites(have, ref, want); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// publisherTest is a Publisher with an owner. start simulates a restart of the process.
type publisherTest struct {
	*Publisher
	t     *testing.T
	owner *appsv1.KsctlInstall
	state State
	// requests counts requests to the API server by verb; packed counts calls of Files.
	requests map[string]int
	packed   int
	served   bool
	secrets  bool // MayContainSecrets of the publication
	// emptyCache simulates a cache without objects.
	emptyCache bool
	dir        string
	api        client.WithWatch
	web        *httptest.Server
}

func newPublisherTest(t *testing.T, there ...client.Object) *publisherTest {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(sourcev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	r := &publisherTest{t: t, requests: map[string]int{}, served: true, dir: t.TempDir(),
		owner: &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shop", UID: "1"}}}
	r.api = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&sourcev1.ExternalArtifact{}).
		WithObjects(there...).Build()
	r.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.Storage.Handler().ServeHTTP(w, req)
	}))
	t.Cleanup(r.web.Close)
	r.start()
	t.Cleanup(func() { _ = r.Storage.Close() })
	return r
}

// start simulates a new process.
func (r *publisherTest) start() {
	r.t.Helper()
	if r.Publisher != nil {
		if err := r.Storage.Close(); err != nil {
			r.t.Fatal(err)
		}
	}
	served, err := storage.Open(storage.Options{Path: r.dir, AdvertisedAddr: strings.TrimPrefix(r.web.URL, "http://")})
	if err != nil {
		r.t.Fatal(err)
	}
	count := func(verb string) { r.requests[verb]++ }
	cached := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if r.emptyCache {
				key.Name += "-unseen"
			}
			return c.Get(ctx, key, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			count("create")
			return c.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			count("patch")
			return c.Patch(ctx, o, p, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch,
			opts ...client.SubResourcePatchOption) error {
			count("status")
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			count("delete")
			return c.Delete(ctx, o, opts...)
		},
	})
	direct := interceptor.NewClient(r.api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			count("get")
			return c.Get(ctx, key, o, opts...)
		},
	})
	r.state = State{}
	r.Publisher = &Publisher{Client: cached, Direct: direct, Storage: served.Space("kind"), FieldOwner: "test",
		Clock:  clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)),
		Serves: func(context.Context, schema.GroupKind) (bool, error) { return r.served, nil }}
}

func (r *publisherTest) publish(files string) (string, error) {
	r.t.Helper()
	clear(r.requests)
	r.packed = 0
	return r.Publish(r.t.Context(), &Publication{Owner: r.owner, Kind: appsv1.GroupVersion.WithKind("KsctlInstall"),
		Version: "1.0.0", Origin: "main@sha1:abc", MayContainSecrets: r.secrets, ContentID: files,
		Files: func(context.Context) (fs.FS, error) {
			r.packed++
			return fstest.MapFS{"a": {Data: []byte(files)}}, nil
		}}, &r.state)
}

// expectRequests publishes, and expects that many calls of Files and exactly those requests.
func (r *publisherTest) expectRequests(files string, packed int, requests map[string]int) string {
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

func (r *publisherTest) object() *sourcev1.ExternalArtifact {
	r.t.Helper()
	o := &sourcev1.ExternalArtifact{}
	if err := r.api.Get(r.t.Context(), client.ObjectKeyFromObject(r.owner), o); err != nil {
		r.t.Fatal(err)
	}
	return o
}

// expectArtifact expects an ExternalArtifact with that revision, and that its files can be
// downloaded.
func (r *publisherTest) expectArtifact(revision, files string) {
	r.t.Helper()
	o := r.object()
	a := o.Status.Artifact
	if a == nil || a.Revision != revision || revision != "1.0.0@"+a.Digest ||
		a.Metadata[originKey] != "main@sha1:abc" || !apimeta.IsStatusConditionTrue(o.Status.Conditions, "Ready") {
		r.t.Fatalf("status %+v, want revision %s", o.Status, revision)
	}
	if ref := o.Spec.SourceRef; ref == nil || ref.Kind != "KsctlInstall" || ref.APIVersion != "apps.ksctl.com/v1" ||
		ref.Name != "shop" || ref.Namespace != "team" || !metav1.IsControlledBy(o, r.owner) {
		r.t.Errorf("sourceRef %+v, owned by %+v", ref, o.OwnerReferences)
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

var noRequests = map[string]int{}

func TestPublish(t *testing.T) {
	r := newPublisherTest(t)
	first := r.expectRequests("1", 1, map[string]int{"create": 1, "status": 1})
	r.expectArtifact(first, "1")
	if again := r.expectRequests("1", 0, noRequests); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	second := r.expectRequests("2", 1, map[string]int{"status": 1})
	r.expectArtifact(second, "2")
	if second == first {
		t.Error("other content has the same revision")
	}
	back := r.expectRequests("1", 1, map[string]int{"status": 1})
	if back != first {
		t.Errorf("the same files have the revision %s, then %s", first, back)
	}
	r.expectArtifact(first, "1")
}

func TestPublishRestoresTheObject(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(r *publisherTest) error
		packed   int
		requests map[string]int
	}{
		"after a restart": {func(r *publisherTest) error { r.start(); return nil }, 1, noRequests},
		"with an empty disk": {func(r *publisherTest) error {
			r.dir = r.t.TempDir()
			r.start()
			return nil
		}, 1, noRequests},
		"after the object was deleted": {func(r *publisherTest) error {
			return r.api.Delete(r.t.Context(), r.object())
		}, 0, map[string]int{"get": 1, "create": 1, "status": 1}},
		"while the cache lacks the object": {func(r *publisherTest) error {
			r.emptyCache = true
			return nil
		}, 0, map[string]int{"get": 1}},
		"after a restart, while the cache lacks the object": {func(r *publisherTest) error {
			r.emptyCache = true
			r.start()
			return nil
		}, 1, map[string]int{"create": 1, "get": 1}},
		"after a user changed the spec": {func(r *publisherTest) error {
			o := r.object()
			o.Spec.SourceRef.Name = "other"
			return r.api.Update(r.t.Context(), o)
		}, 0, map[string]int{"patch": 1, "status": 1}},
		"after a user removed the artifact from the status": {func(r *publisherTest) error {
			o := r.object()
			o.Status.Artifact = nil
			return r.api.Status().Update(r.t.Context(), o)
		}, 0, map[string]int{"status": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPublisherTest(t)
			revision := r.expectRequests("1", 1, map[string]int{"create": 1, "status": 1})
			if err := c.change(r); err != nil {
				t.Fatal(err)
			}
			r.expectRequests("1", c.packed, c.requests)
			r.expectArtifact(revision, "1")
		})
	}
}

func TestPublishErrors(t *testing.T) {
	theirs := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shop",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Other", Name: "x", UID: "2",
			Controller: new(true)}}}}
	for _, blind := range []bool{false, true} {
		r := newPublisherTest(t, theirs.DeepCopy())
		r.emptyCache = blind
		_, err := r.publish("1")
		if owned, ok := errors.AsType[*OwnedError](err); !ok || owned.By != "Other x" {
			t.Errorf("object of another owner: %v", err)
		}
		if got := r.object(); got.Status.Artifact != nil || got.Spec.SourceRef != nil {
			t.Errorf("the object of another owner was changed: %+v", got)
		}
		if err := r.Withdraw(t.Context(), r.owner, &r.state); err != nil {
			t.Error(err)
		}
		r.object() // still exists
	}
	r := newPublisherTest(t)
	r.served = false
	_, err := r.publish("1")
	if e, ok := errors.AsType[*sourceref.Error](err); !ok || e.Reason != sourceref.NotServed || r.packed > 0 {
		t.Errorf("kind is not served: %v", err)
	}
}

func TestWithdraw(t *testing.T) {
	r := newPublisherTest(t)
	r.expectRequests("1", 1, map[string]int{"create": 1, "status": 1})
	url := r.object().Status.Artifact.URL
	for range 2 {
		if err := r.Withdraw(t.Context(), r.owner, &r.state); err != nil {
			t.Fatal(err)
		}
		if err := r.api.Get(t.Context(), client.ObjectKeyFromObject(r.owner),
			&sourcev1.ExternalArtifact{}); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the object still exists: %v", err)
		}
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNotFound {
			t.Errorf("download of the withdrawn artifact: %s %v", resp.Status, err)
		}
	}
	r.expectRequests("1", 1, map[string]int{"create": 1, "status": 1})
	r.served = false // the definition was deleted, and the objects with it
	if err := r.Withdraw(t.Context(), r.owner, &r.state); err != nil {
		t.Error(err)
	}
}
