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

var wanted = artifact.Artifact{URL: "http://source/x.tar.gz", Revision: "main@sha1:abc", Digest: "sha256:def"}

func status(ready metav1.ConditionStatus, message string, generation int64) []metav1.Condition {
	return []metav1.Condition{{Type: fluxmeta.ReadyCondition, Status: ready, Message: message, ObservedGeneration: generation}}
}

func named(name string, generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, Generation: generation}
}

func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(sourcev1.AddToScheme(s), appsv1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	a := &fluxmeta.Artifact{URL: wanted.URL, Revision: wanted.Revision, Digest: wanted.Digest}
	git := func(name string, c []metav1.Condition, a *fluxmeta.Artifact) client.Object {
		return &sourcev1.GitRepository{ObjectMeta: named(name, 2), Status: sourcev1.GitRepositoryStatus{Conditions: c, Artifact: a}}
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(
		git("ready", status("True", "stored", 2), a),
		git("stale", status("True", "stored", 1), a),
		git("failing", status("False", "no route to host", 2), a),
		git("silent", nil, a),
		git("new", nil, nil),
		git("never", status("False", "authentication required", 2), nil),
		&sourcev1.OCIRepository{ObjectMeta: named("oci", 1), Status: sourcev1.OCIRepositoryStatus{Conditions: status("True", "", 1), Artifact: a}},
		&sourcev1.Bucket{ObjectMeta: named("bucket", 1), Status: sourcev1.BucketStatus{Conditions: status("True", "", 1), Artifact: a}},
		&sourcev1.ExternalArtifact{ObjectMeta: named("ext", 1), Status: sourcev1.ExternalArtifactStatus{Conditions: status("True", "", 1), Artifact: a}},
		&appsv1.KsctlSource{ObjectMeta: named("own", 1), Status: appsv1.KsctlSourceStatus{
			CommonStatus: appsv1.CommonStatus{Conditions: status("True", "", 1)}, Artifact: a}},
	).Build()
}

func serves(is bool, err error) func(context.Context, schema.GroupKind) (bool, error) {
	return func(context.Context, schema.GroupKind) (bool, error) { return is, err }
}

func TestResolve(t *testing.T) {
	r := &Resolver{Client: newClient(t), NoCrossNamespace: true, Serves: serves(true, nil)}
	for _, c := range []struct {
		kind, name string
		ready      bool
		message    string
	}{
		{"GitRepository", "ready", true, ""},
		{"OCIRepository", "oci", true, ""},
		{"Bucket", "bucket", true, ""},
		{"ExternalArtifact", "ext", true, ""},
		{"KsctlSource", "own", true, ""},
		{"GitRepository", "stale", false, "not reconciled yet"},
		{"GitRepository", "failing", false, "no route to host"},
		{"GitRepository", "silent", false, "does not say"},
	} {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			for _, namespace := range []string{"", "team"} {
				got, err := r.Resolve(t.Context(), appsv1.SourceRef{Kind: c.kind, Name: c.name, Namespace: namespace}, "team")
				if err != nil {
					t.Fatal(err)
				}
				if got.Artifact != wanted {
					t.Errorf("got %v, want %v", got.Artifact, wanted)
				}
				if got.Ready != c.ready || !strings.Contains(got.Message, c.message) || (c.ready && got.Message != "") {
					t.Errorf("ready %v %q, want %v %q", got.Ready, got.Message, c.ready, c.message)
				}
			}
		})
	}
}

func TestResolveRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		ref      appsv1.SourceRef
		serves   bool
		want     Reason
		says     string
		terminal bool
	}{
		"not there":            {appsv1.SourceRef{Kind: "GitRepository", Name: "nothing"}, true, NotFound, "GitRepository team/nothing", false},
		"no artifact":          {appsv1.SourceRef{Kind: "GitRepository", Name: "new"}, true, NotReady, "nobody has reconciled it", false},
		"never any artifact":   {appsv1.SourceRef{Kind: "GitRepository", Name: "never"}, true, NotReady, "authentication required", false},
		"Flux is not there":    {appsv1.SourceRef{Kind: "GitRepository", Name: "ready"}, false, NotServed, "KsctlSource", false},
		"another namespace":    {appsv1.SourceRef{Kind: "GitRepository", Name: "ready", Namespace: "other"}, true, AccessDenied, "--no-cross-namespace-refs", true},
		"not a kind of source": {appsv1.SourceRef{Kind: "Secret", Name: "ready"}, true, UnknownKind, "Secret", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Resolver{Client: newClient(t), NoCrossNamespace: true, Serves: serves(c.serves, nil)}
			_, err := r.Resolve(t.Context(), c.ref, "team")
			var e *Error
			if !errors.As(err, &e) || e.Reason != c.want || e.Terminal() != c.terminal || !strings.Contains(e.Error(), c.says) {
				t.Errorf("got %v, want %s that says %q", err, c.want, c.says)
			}
		})
	}
}

func TestResolveAcrossNamespaces(t *testing.T) {
	r := &Resolver{Client: newClient(t)}
	got, err := r.Resolve(t.Context(), appsv1.SourceRef{Kind: "GitRepository", Name: "ready", Namespace: "team"}, "other")
	if err != nil || got.Artifact != wanted {
		t.Errorf("got %v %v", got, err)
	}
}

// counting fails every read and counts them.
func counting(t *testing.T, err error) (client.Reader, *int) {
	t.Helper()
	n := new(int)
	return interceptor.NewClient(newClient(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			*n++
			return err
		},
	}), n
}

func TestResolveAsksNobodyForWhatIsRefused(t *testing.T) {
	c, reads := counting(t, errors.New("asked"))
	r := &Resolver{Client: c, NoCrossNamespace: true, Serves: serves(false, nil)}
	for _, ref := range []appsv1.SourceRef{
		{Kind: "GitRepository", Name: "x", Namespace: "other"}, // must not tell whether it exists
		{Kind: "GitRepository", Name: "x"},                     // must not begin a watch that can't sync
	} {
		if _, err := r.Resolve(t.Context(), ref, "team"); !errors.As(err, new(*Error)) {
			t.Errorf("%v: %v", ref, err)
		}
	}
	if *reads != 0 {
		t.Errorf("%d reads", *reads)
	}
}

func TestResolveWithoutTheKind(t *testing.T) {
	c, _ := counting(t, &apimeta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "OCIRepository"}})
	_, err := (&Resolver{Client: c}).Resolve(t.Context(), appsv1.SourceRef{Kind: "OCIRepository", Name: "x"}, "team")
	var e *Error
	if !errors.As(err, &e) || e.Reason != NotServed || e.Terminal() {
		t.Errorf("got %v", err)
	}
}

// While nobody knows what the cluster serves, nobody is told to install anything.
func TestResolveWhenNobodyKnowsWhatIsServed(t *testing.T) {
	down := errors.New("connection refused")
	c, reads := counting(t, errors.New("asked"))
	_, err := (&Resolver{Client: c, Serves: serves(false, down)}).Resolve(t.Context(), appsv1.SourceRef{Kind: "GitRepository", Name: "x"}, "team")
	if !errors.Is(err, down) || errors.As(err, new(*Error)) || *reads != 0 {
		t.Errorf("got %v after %d reads", err, *reads)
	}
}

func TestResolveWhenTheServerFails(t *testing.T) {
	down := errors.New("connection refused")
	c, _ := counting(t, down)
	_, err := (&Resolver{Client: c}).Resolve(t.Context(), appsv1.SourceRef{Kind: "GitRepository", Name: "x"}, "team")
	if !errors.Is(err, down) || errors.As(err, new(*Error)) {
		t.Errorf("got %v: says nothing of the source", err)
	}
}
