package live

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PreventDeletionAnnotation with the value true keeps an object from being deleted
// by us, whoever asks for it.
const PreventDeletionAnnotation = "ksctl.com/prevent-deletion"

// AdoptedAnnotation is on objects that were there before us: removal releases them.
const AdoptedAnnotation = "ksctl.com/adopted"

// ValueAt is the JSON of the field that a JSON pointer leads to; nil when there is none.
func ValueAt(u *unstructured.Unstructured, pointer string) (json.RawMessage, error) {
	tokens, err := parsePointer(pointer)
	if err != nil {
		return nil, err
	}
	v, ok := lookup(u.Object, tokens)
	if !ok {
		return nil, nil
	}
	return json.Marshal(v)
}

// ParsePointer splits a JSON pointer to a field into its tokens.
func ParsePointer(pointer string) ([]string, error) { return parsePointer(pointer) }
