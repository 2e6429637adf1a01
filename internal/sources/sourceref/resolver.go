package sourceref

import (
	"cmp"
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
	"github.com/ksctl/gitops/controllers/reconcile"
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

// readTimeout bounds the read of a source: a cache blocks while it is not allowed to list a kind,
// or after the kind was removed.
const readTimeout = 10 * time.Second

// Resolve returns the artifact of the source that an object in a namespace refers to. It is the
// last good one if the source is not ready. An error about the source itself is an *Error.
func (r *Resolver) Resolve(ctx context.Context, ref appsv1.SourceRef,
	namespace string) (none artifact.Artifact, err error) {
	obj, gvk, ok := NewObject(ref.Kind)
	if !ok {
		return none, newError(UnknownKind,
			"unknown kind of source %q: expected GitRepository, OCIRepository, Bucket, ExternalArtifact or KsctlSource",
			ref.Kind)
	}
	key := types.NamespacedName{Namespace: cmp.Or(ref.Namespace, namespace), Name: ref.Name}
	// This check comes before any read: the error must not reveal whether the source exists.
	if r.NoCrossNamespace && key.Namespace != namespace {
		return none, newError(AccessDenied,
			"%s %s is in another namespace, which the controller forbids (--no-cross-namespace-refs)", ref.Kind, key)
	}
	if r.Serves != nil {
		serves, err := r.Serves(ctx, gvk.GroupKind())
		if err != nil {
			return none, fmt.Errorf("checking whether the cluster serves %s in %s: %w", gvk.Kind, gvk.GroupVersion(),
				err)
		}
		if !serves {
			return none, notServed(gvk)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	switch err = r.Client.Get(ctx, key, obj); {
	case err == nil:
		return offeredArtifact(obj, ref.Kind, key)
	case apierrors.IsNotFound(err):
		return none, newError(NotFound, "%s %s does not exist: create it or correct spec.sourceRef", ref.Kind, key)
	case apimeta.IsNoMatchError(err):
		return none, notServed(gvk)
	}
	return none, fmt.Errorf("reading %s %s: %w", ref.Kind, key, err)
}

// offeredArtifact returns the artifact of a source that exists.
func offeredArtifact(obj Object, kind string, key types.NamespacedName) (artifact.Artifact, error) {
	a := obj.GetArtifact()
	if a == nil {
		why := "not reconciled yet"
		if apimeta.FindStatusCondition(conditions(obj), fluxmeta.ReadyCondition) != nil {
			why = reconcile.QuotedMessage(conditions(obj))
		}
		err := newError(NotReady, "%s %s has no artifact yet: %s", kind, key, why)
		err.On = appsv1.WaitReference{Type: appsv1.WaitReadiness, Kind: kind, Namespace: key.Namespace, Name: key.Name}
		return artifact.Artifact{}, err
	}
	return artifact.Artifact{URL: a.URL, Revision: a.Revision, Digest: a.Digest}, nil
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

// Reason is the condition reason of an Error.
type Reason string

// Reasons.
const (
	// NotFound: the source does not exist.
	NotFound Reason = "SourceNotFound"
	// NotReady: the source has no artifact yet.
	NotReady Reason = "SourceNotReady"
	// NotServed: the cluster does not serve the kind of the source.
	NotServed Reason = "SourceKindNotServed"
	// AccessDenied: the source is in another namespace, and that is not allowed.
	AccessDenied Reason = "AccessDenied"
	// UnknownKind: the kind is not a kind of source.
	UnknownKind Reason = "UnknownSourceKind"
)

// Error means that a reference gives no artifact. Failed requests to the API server are not of this
// type, because they tell nothing about the source.
type Error struct {
	Reason  Reason
	Message string
	// On is the source of an error with the reason NotReady.
	On appsv1.WaitReference
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Terminal reports whether only a change of the reference helps. The other errors end with an event
// of the source or of its CustomResourceDefinition.
func (e *Error) Terminal() bool { return e.Reason == AccessDenied || e.Reason == UnknownKind }
