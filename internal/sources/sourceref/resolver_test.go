package sourceref

import (
	"context"
	"errors"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact"
)

var wantArtifact = artifact.Artifact{URL: "http://source/x.tar.gz", Revision: "main@sha1:abc", Digest: "sha256:def"}

func readyCondition(ready metav1.ConditionStatus, message string, generation int64) []metav1.Condition {
	return []metav1.Condition{{Type: fluxmeta.ReadyCondition, Status: ready, Message: message,
		ObservedGeneration: generation}}
}

func objectMeta(name string, generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, Generation: generation}
}

func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(sourcev1.AddToScheme(s), appsv1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	a := &fluxmeta.Artifact{URL: wantArtifact.URL, Revision: wantArtifact.Revision, Digest: wantArtifact.Digest}
	git := func(name string, c []metav1.Condition, a *fluxmeta.Artifact) client.Object {
		return &sourcev1.GitRepository{ObjectMeta: objectMeta(name, 2),
			Status: sourcev1.GitRepositoryStatus{Conditions: c, Artifact: a}}
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(
		git("ready", readyCondition("True", "stored", 2), a),
		git("stale", readyCondition("True", "stored", 1), a),
		git("failing", readyCondition("False", "no route to host", 2), a),
		git("silent", nil, a),
		git("new", nil, nil),
		git("never", readyCondition("False", "authentication required", 2), nil),
		&sourcev1.OCIRepository{ObjectMeta: objectMeta("oci", 1),
			Status: sourcev1.OCIRepositoryStatus{Conditions: readyCondition("True", "", 1), Artifact: a}},
		&sourcev1.Bucket{ObjectMeta: objectMeta("bucket", 1),
			Status: sourcev1.BucketStatus{Conditions: readyCondition("True", "", 1), Artifact: a}},
		&sourcev1.ExternalArtifact{ObjectMeta: objectMeta("ext", 1),
			Status: sourcev1.ExternalArtifactStatus{Conditions: readyCondition("True", "", 1), Artifact: a}},
		&appsv1.KsctlSource{ObjectMeta: objectMeta("own", 1), Status: appsv1.KsctlSourceStatus{
			CommonStatus: appsv1.CommonStatus{Conditions: readyCondition("True", "", 1)}, Artifact: a}},
	).Build()
}

func serves(is bool, err error) func(context.Context, schema.GroupKind) (bool, error) {
	return func(context.Context, schema.GroupKind) (bool, error) { return is, err }
}

func TestResolve(t *testing.T) {
	r := &Resolver{Client: newClient(t), NoCrossNamespace: true, Serves: serves(true, nil)}
	for _, c := range []struct{ kind, name string }{
		{"GitRepository", "ready"}, {"OCIRepository", "oci"}, {"Bucket", "bucket"}, {"ExternalArtifact", "ext"},
		{"KsctlSource", "own"},
		// The last good artifact of a source that is not ready.
		{"GitRepository", "stale"}, {"GitRepository", "failing"}, {"GitRepository", "silent"},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			for _, namespace := range []string{"", "team"} {
				got, err := r.Resolve(t.Context(), appsv1.SourceRef{Kind: c.kind, Name: c.name, Namespace: namespace},
					"team")
				if err != nil {
					t.Fatal(err)
				}
				if got != wantArtifact {
					t.Errorf("got %v, want %v", got, wantArtifact)
				}
			}
		})
	}
}

func TestResolveErrors(t *testing.T) {
	for name, c := range map[string]struct {
		ref      appsv1.SourceRef
		serves   bool
		want     Reason
		says     string
		terminal bool
	}{
		"source does not exist": {appsv1.SourceRef{Kind: "GitRepository", Name: "nothing"}, true, NotFound,
			"GitRepository team/nothing", false},
		"no artifact yet": {appsv1.SourceRef{Kind: "GitRepository", Name: "new"}, true, NotReady,
			"not reconciled yet", false},
		"no artifact, failing": {appsv1.SourceRef{Kind: "GitRepository", Name: "never"}, true, NotReady,
			"authentication required", false},
		"kind is not served": {appsv1.SourceRef{Kind: "GitRepository", Name: "ready"}, false, NotServed,
			"KsctlSource", false},
		"another namespace": {appsv1.SourceRef{Kind: "GitRepository", Name: "ready", Namespace: "other"}, true,
			AccessDenied, "--no-cross-namespace-refs", true},
		"not a kind of source": {appsv1.SourceRef{Kind: "Secret", Name: "ready"}, true, UnknownKind, "Secret", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Resolver{Client: newClient(t), NoCrossNamespace: true, Serves: serves(c.serves, nil)}
			_, err := r.Resolve(t.Context(), c.ref, "team")
			var e *Error
			if !errors.As(err, &e) || e.Reason != c.want || e.Terminal() != c.terminal ||
				!strings.Contains(e.Error(), c.says) {
				t.Errorf("got %v, want %s with %q", err, c.want, c.says)
			}
		})
	}
}

func TestResolveAcrossNamespaces(t *testing.T) {
	r := &Resolver{Client: newClient(t)}
	got, err := r.Resolve(t.Context(), appsv1.SourceRef{Kind: "GitRepository", Name: "ready", Namespace: "team"},
		"other")
	if err != nil || got != wantArtifact {
		t.Errorf("got %v %v", got, err)
	}
}

// countingReader returns a reader that counts reads and fails each of them.
func countingReader(t *testing.T, err error) (client.Reader, *int) {
	t.Helper()
	n := new(int)
	return interceptor.NewClient(newClient(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			*n++
			return err
		},
	}), n
}

func TestResolveDoesNotReadRejectedReferences(t *testing.T) {
	c, reads := countingReader(t, errors.New("asked"))
	r := &Resolver{Client: c, NoCrossNamespace: true, Serves: serves(false, nil)}
	for _, ref := range []appsv1.SourceRef{
		{Kind: "GitRepository", Name: "x", Namespace: "other"}, // must not reveal whether it exists
		{Kind: "GitRepository", Name: "x"},                     // must not start a watch that never syncs
	} {
		if _, err := r.Resolve(t.Context(), ref, "team"); !errors.As(err, new(*Error)) {
			t.Errorf("%v: %v", ref, err)
		}
	}
	if *reads != 0 {
		t.Errorf("%d reads", *reads)
	}
}

func TestResolveKindWithoutMapping(t *testing.T) {
	c, _ := countingReader(t, &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "OCIRepository"}})
	_, err := (&Resolver{Client: c}).Resolve(t.Context(), appsv1.SourceRef{Kind: "OCIRepository", Name: "x"}, "team")
	var e *Error
	if !errors.As(err, &e) || e.Reason != NotServed || e.Terminal() {
		t.Errorf("got %v", err)
	}
}

// While discovery fails, the error does not advise to install Flux.
func TestResolveWhenDiscoveryFails(t *testing.T) {
	down := errors.New("connection refused")
	c, reads := countingReader(t, errors.New("asked"))
	_, err := (&Resolver{Client: c, Serves: serves(false, down)}).Resolve(t.Context(),
		appsv1.SourceRef{Kind: "GitRepository", Name: "x"}, "team")
	if !errors.Is(err, down) || errors.As(err, new(*Error)) || *reads != 0 {
		t.Errorf("got %v after %d reads", err, *reads)
	}
}

func TestResolveWhenTheReadFails(t *testing.T) {
	down := errors.New("connection refused")
	c, _ := countingReader(t, down)
	_, err := (&Resolver{Client: c}).Resolve(t.Context(), appsv1.SourceRef{Kind: "GitRepository", Name: "x"}, "team")
	if !errors.Is(err, down) || errors.As(err, new(*Error)) {
		t.Errorf("got %v, want an error that is not an *Error", err)
	}
}
