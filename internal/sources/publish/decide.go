package publish

import (
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OwnedError means that an ExternalArtifact of that name exists and has another owner.
type OwnedError struct{ Namespace, Name, By string }

// Error implements error.
func (e *OwnedError) Error() string {
	return fmt.Sprintf("ExternalArtifact %s/%s exists and is owned by %s: delete it or rename the install", e.Namespace,
		e.Name, e.By)
}

// checkOwner returns an *OwnedError if the ExternalArtifact exists and another object controls it,
// or none.
func checkOwner(have *sourcev1.ExternalArtifact, owner client.Object) error {
	if have == nil || metav1.IsControlledBy(have, owner) {
		return nil
	}
	by := "no controller"
	if c := metav1.GetControllerOf(have); c != nil {
		by = c.Kind + " " + c.Name
		if c.Name == owner.GetName() && c.UID != owner.GetUID() {
			by += ", which was deleted and re-created"
		}
	}
	return &OwnedError{Namespace: have.Namespace, Name: have.Name, By: by}
}

// requiredWrites are the writes that bring an ExternalArtifact to its desired state.
type requiredWrites struct{ create, spec, status bool }

// decideWrites returns the required writes. A difference in the update time or in the metadata of
// the artifact requires none.
func decideWrites(have *sourcev1.ExternalArtifact, ref *fluxmeta.NamespacedObjectKindReference,
	want *fluxmeta.Artifact) requiredWrites {
	if have == nil {
		return requiredWrites{create: true, status: true}
	}
	w := requiredWrites{spec: have.Spec.SourceRef == nil || *have.Spec.SourceRef != *ref}
	current := have.Status.Artifact
	same := current != nil && current.Revision == want.Revision && current.Digest == want.Digest &&
		current.URL == want.URL && current.Path == want.Path
	ready := apimeta.FindStatusCondition(have.Status.Conditions, fluxmeta.ReadyCondition)
	w.status = !same || w.spec || ready == nil || ready.Status != metav1.ConditionTrue ||
		ready.ObservedGeneration != have.Generation
	return w
}
