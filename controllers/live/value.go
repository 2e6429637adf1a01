package live

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PreventDeletionAnnotation with the value "true" prevents the controllers from deleting the
// object, whoever requests the deletion.
const PreventDeletionAnnotation = "ksctl.com/prevent-deletion"

// AdoptedAnnotation is on objects that existed before they were managed. A removal releases them
// instead of deleting them.
const AdoptedAnnotation = "ksctl.com/adopted"

// ValueAt returns the JSON of the field at a JSON pointer; nil when the field is absent. It fails
// if the pointer is invalid.
func ValueAt(u *unstructured.Unstructured, pointer string) (json.RawMessage, error) {
	tokens, err := ParsePointer(pointer)
	if err != nil {
		return nil, err
	}
	v, ok := lookup(u.Object, tokens)
	if !ok {
		return nil, nil
	}
	return json.Marshal(v)
}
