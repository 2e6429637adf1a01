package publish

import (
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OwnedError says that there is an ExternalArtifact of that name which is not ours.
type OwnedError struct{ Namespace, Name, By string }

// Error implements error.
func (e *OwnedError) Error() string {
	return fmt.Sprintf("ExternalArtifact %s/%s exists and belongs to %s: remove it, or give the install another name", e.Namespace, e.Name, e.By)
}

// foreign says whose an ExternalArtifact is that does not belong to an owner; nil
// where there is none, or it does.
func foreign(have *sourcev1.ExternalArtifact, owner client.Object) error {
	if have == nil || metav1.IsControlledBy(have, owner) {
		return nil
	}
	by := "nobody who says so"
	if c := metav1.GetControllerOf(have); c != nil {
		by = c.Kind + " " + c.Name
		if c.Name == owner.GetName() && c.UID != owner.GetUID() {
			by += ", which was deleted and made anew"
		}
	}
	return &OwnedError{Namespace: have.Namespace, Name: have.Name, By: by}
}

// writes are what it takes until an ExternalArtifact says what it should.
type writes struct{ create, spec, status bool }

// decide finds what it takes: nothing, where it says so already. The time of an
// update and what is only said beside the revision do not count.
func decide(have *sourcev1.ExternalArtifact, ref *fluxmeta.NamespacedObjectKindReference, want *fluxmeta.Artifact) writes {
	if have == nil {
		return writes{create: true, status: true}
	}
	w := writes{spec: have.Spec.SourceRef == nil || *have.Spec.SourceRef != *ref}
	is := have.Status.Artifact
	same := is != nil && is.Revision == want.Revision && is.Digest == want.Digest && is.URL == want.URL && is.Path == want.Path
	ready := apimeta.FindStatusCondition(have.Status.Conditions, fluxmeta.ReadyCondition)
	w.status = !same || w.spec || ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != have.Generation
	return w
}
