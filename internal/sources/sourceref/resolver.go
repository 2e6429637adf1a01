package sourceref

import (
	"context"
	"fmt"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact"
)

// KsctlSourceKind is the kind of source that needs no Flux.
const KsctlSourceKind = "KsctlSource"

// Object is what every kind of source is.
type Object interface {
	client.Object
	GetArtifact() *fluxmeta.Artifact
}

// conditions of a source: Flux's kinds and ours offer them differently.
func conditions(obj Object) []metav1.Condition {
	switch o := obj.(type) {
	case interface{ GetConditions() []metav1.Condition }:
		return o.GetConditions()
	case interface{ CommonStatus() *appsv1.CommonStatus }:
		return o.CommonStatus().Conditions
	}
	return nil
}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories;ocirepositories;buckets;externalartifacts,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps.ksctl.com,resources=ksctlsources,verbs=get;list;watch

// New returns an empty object of a kind of source, and its kind in full; false
// if it is none.
func New(kind string) (Object, schema.GroupVersionKind, bool) {
	flux := sourcev1.GroupVersion.WithKind
	switch kind {
	case sourcev1.GitRepositoryKind:
		return &sourcev1.GitRepository{}, flux(kind), true
	case sourcev1.OCIRepositoryKind:
		return &sourcev1.OCIRepository{}, flux(kind), true
	case sourcev1.BucketKind:
		return &sourcev1.Bucket{}, flux(kind), true
	case sourcev1.ExternalArtifactKind:
		return &sourcev1.ExternalArtifact{}, flux(kind), true
	case KsctlSourceKind:
		return &appsv1.KsctlSource{}, appsv1.GroupVersion.WithKind(kind), true
	}
	return nil, schema.GroupVersionKind{}, false
}

// Resolver finds artifacts.
type Resolver struct {
	// Client reads sources.
	Client client.Reader
	// Serves is true when the cluster serves a kind. Without it the client is
	// asked for any kind.
	Serves func(context.Context, schema.GroupKind) (bool, error)
	// NoCrossNamespace refuses sources of other namespaces
	// (--no-cross-namespace-refs).
	NoCrossNamespace bool
}

// Source is what a source offers.
type Source struct {
	// Artifact to fetch.
	Artifact artifact.Artifact
	// Ready is true when the source says that its artifact is what its spec
	// asks for. An artifact is used also when it is not: it is the last good one.
	Ready bool
	// Message of the source's Ready condition, when it is not ready.
	Message string
}

// readWithin bounds the read of a source: a cache that may not list a kind, or
// whose kind went away, has no answer, and somebody waits.
const readWithin = 10 * time.Second

// Resolve finds the artifact of the source that an object in namespace refers
// to. An error that says something of the source is an *Error.
func (r *Resolver) Resolve(ctx context.Context, ref appsv1.SourceRef, namespace string) (Source, error) {
	obj, gvk, ok := New(ref.Kind)
	if !ok {
		return Source{}, fail(UnknownKind, "%q is not a kind of source; expected GitRepository, OCIRepository, Bucket, ExternalArtifact or KsctlSource", ref.Kind)
	}
	key := types.NamespacedName{Namespace: namespace, Name: ref.Name}
	if ref.Namespace != "" {
		key.Namespace = ref.Namespace
	}
	// Before anything is read: a refusal must not tell whether the source exists.
	if r.NoCrossNamespace && key.Namespace != namespace {
		return Source{}, fail(AccessDenied, "%s %s is in another namespace, and the controller runs with --no-cross-namespace-refs", ref.Kind, key)
	}
	if err := r.served(ctx, gvk); err != nil {
		return Source{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	err := r.Client.Get(ctx, key, obj)
	switch {
	case err == nil:
		return offer(obj, ref.Kind, key)
	case apierrors.IsNotFound(err):
		return Source{}, fail(NotFound, "%s %s does not exist: create it, or correct spec.sourceRef", ref.Kind, key)
	case apimeta.IsNoMatchError(err):
		return Source{}, notServed(gvk)
	}
	return Source{}, fmt.Errorf("reading %s %s: %w", ref.Kind, key, err)
}

// served is an error when the cluster does not serve a kind, or nobody knows.
func (r *Resolver) served(ctx context.Context, gvk schema.GroupVersionKind) error {
	if r.Serves == nil {
		return nil
	}
	serves, err := r.Serves(ctx, gvk.GroupKind())
	if err != nil {
		return fmt.Errorf("whether this cluster serves %s in %s is not known: %w", gvk.Kind, gvk.GroupVersion(), err)
	}
	if !serves {
		return notServed(gvk)
	}
	return nil
}

// offer is what a source that exists offers.
func offer(obj Object, kind string, key types.NamespacedName) (Source, error) {
	a, ready := obj.GetArtifact(), apimeta.FindStatusCondition(conditions(obj), fluxmeta.ReadyCondition)
	if a == nil {
		why := "nobody has reconciled it yet"
		if ready != nil {
			why = ready.Message
		}
		return Source{}, fail(NotReady, "%s %s has no artifact yet: %s", kind, key, why)
	}
	s := Source{Artifact: artifact.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest}}
	switch {
	case ready == nil:
		s.Message = "it does not say whether it is ready"
	case ready.Status == metav1.ConditionTrue && ready.ObservedGeneration >= obj.GetGeneration():
		s.Ready = true
	case ready.Status == metav1.ConditionTrue:
		s.Message = "its spec has changed and was not reconciled yet"
	default:
		s.Message = ready.Message
	}
	return s, nil
}

func notServed(gvk schema.GroupVersionKind) *Error {
	hint := "install its CustomResourceDefinition"
	if gvk.Group == sourcev1.GroupVersion.Group {
		hint = "install Flux's source-controller in a version that serves it, or use a KsctlSource"
	}
	return fail(NotServed, "this cluster does not serve %s in %s: %s", gvk.Kind, gvk.GroupVersion(), hint)
}

func fail(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}
