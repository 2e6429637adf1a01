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

// Object is an object of any kind of source.
type Object interface {
	client.Object
	GetArtifact() *fluxmeta.Artifact
}

// conditions returns the conditions of a source. Flux's kinds and KsctlSource have different
// methods for them.
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

// NewObject returns an empty object of a kind of source and its GroupVersionKind; false if the kind
// is not a kind of source.
func NewObject(kind string) (Object, schema.GroupVersionKind, bool) {
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
	case appsv1.KsctlSourceKind: // the kind that does not require Flux
		return &appsv1.KsctlSource{}, appsv1.GroupVersion.WithKind(kind), true
	}
	return nil, schema.GroupVersionKind{}, false
}

// Resolver resolves references to sources.
type Resolver struct {
	// Client reads sources.
	Client client.Reader
	// Serves reports whether the cluster serves a kind. If it is nil, the check is skipped.
	Serves func(context.Context, schema.GroupKind) (bool, error)
	// NoCrossNamespace rejects sources in other namespaces (--no-cross-namespace-refs).
	NoCrossNamespace bool
}

// Source is the observed state of a source.
type Source struct {
	// Artifact is the artifact to fetch.
	Artifact artifact.Artifact
	// Ready is true if the source reports that its artifact matches its current spec. If it is
	// false, the artifact is the last good one and is used all the same.
	Ready bool
	// Message explains why the source is not ready.
	Message string
}

// readTimeout bounds the read of a source: a cache blocks while it is not allowed to list a kind,
// or after the kind was removed.
const readTimeout = 10 * time.Second

// Resolve returns the source that an object in a namespace refers to. An error about the source
// itself is an *Error.
func (r *Resolver) Resolve(ctx context.Context, ref appsv1.SourceRef, namespace string) (Source, error) {
	obj, gvk, ok := NewObject(ref.Kind)
	if !ok {
		return Source{}, newError(UnknownKind, "unknown kind of source %q: expected GitRepository, OCIRepository, Bucket, ExternalArtifact or KsctlSource", ref.Kind)
	}
	key := types.NamespacedName{Namespace: namespace, Name: ref.Name}
	if ref.Namespace != "" {
		key.Namespace = ref.Namespace
	}
	// This check comes before any read: the error must not reveal whether the source exists.
	if r.NoCrossNamespace && key.Namespace != namespace {
		return Source{}, newError(AccessDenied, "%s %s is in another namespace, which the controller forbids (--no-cross-namespace-refs)", ref.Kind, key)
	}
	if err := r.checkServed(ctx, gvk); err != nil {
		return Source{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := r.Client.Get(ctx, key, obj)
	switch {
	case err == nil:
		return sourceOf(obj, ref.Kind, key)
	case apierrors.IsNotFound(err):
		return Source{}, newError(NotFound, "%s %s does not exist: create it or correct spec.sourceRef", ref.Kind, key)
	case apimeta.IsNoMatchError(err):
		return Source{}, notServed(gvk)
	}
	return Source{}, fmt.Errorf("reading %s %s: %w", ref.Kind, key, err)
}

// checkServed returns an error if the cluster does not serve a kind, or if that is unknown.
func (r *Resolver) checkServed(ctx context.Context, gvk schema.GroupVersionKind) error {
	if r.Serves == nil {
		return nil
	}
	serves, err := r.Serves(ctx, gvk.GroupKind())
	if err != nil {
		return fmt.Errorf("checking whether the cluster serves %s in %s: %w", gvk.Kind, gvk.GroupVersion(), err)
	}
	if !serves {
		return notServed(gvk)
	}
	return nil
}

// sourceOf returns the observed state of a source that exists.
func sourceOf(obj Object, kind string, key types.NamespacedName) (Source, error) {
	a, ready := obj.GetArtifact(), apimeta.FindStatusCondition(conditions(obj), fluxmeta.ReadyCondition)
	if a == nil {
		why := "not reconciled yet"
		if ready != nil {
			why = ready.Message
		}
		return Source{}, newError(NotReady, "%s %s has no artifact yet: %s", kind, key, why)
	}
	s := Source{Artifact: artifact.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest}}
	switch {
	case ready == nil:
		s.Message = "the source has no Ready condition"
	case ready.Status == metav1.ConditionTrue && ready.ObservedGeneration >= obj.GetGeneration():
		s.Ready = true
	case ready.Status == metav1.ConditionTrue:
		s.Message = "the current spec of the source is not reconciled yet"
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
	return newError(NotServed, "the cluster does not serve %s in %s: %s", gvk.Kind, gvk.GroupVersion(), hint)
}

func newError(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}
