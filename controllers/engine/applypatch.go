package engine

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/controllers/live"
)

// precondition is what must hold of the object for an apply to go through.
type precondition struct {
	// absent: the API server answers 201 if the object was not there, 409 if it
	// was. It refuses a resourceVersion that can't be for an existing object.
	absent bool
	// uid of the object that is to be changed.
	uid types.UID
	// version that the object must have if what is sent of it holds for no other.
	version string
}

// body is the server-side-apply request for an item: the manifest, our label
// and marks, the precondition; and of the fields that are others' to change
// what the live object says.
func body(manifest json.RawMessage, it *Item, owner OwnerKey, pre precondition, adopted bool, kept []live.KeptField) ([]byte, error) {
	var obj map[string]any
	if err := utiljson.Unmarshal(manifest, &obj); err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", it.Ref, err)
	}
	racing, err := leaveOthers(obj, kept)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", it.Ref, err)
	}
	foldStringData(it, obj)
	md := object(obj, "metadata")
	// What the API server writes stands in manifests that were read from a cluster.
	for _, field := range []string{"uid", "resourceVersion", "managedFields"} {
		delete(md, field)
	}
	if it.Namespace == "" {
		delete(md, "namespace")
	}
	object(md, "labels")[live.OwnerLabel] = owner.Installation
	ann := object(md, "annotations")
	ann[live.MarkAnnotation] = live.Mark{Owner: owner.String(), ID: it.ID}.String()
	if it.ReadyExpr != "" {
		ann[live.ReadyExprAnnotation] = it.ReadyExpr
	}
	if len(it.Ignore) > 0 {
		b, err := json.Marshal(it.Ignore)
		if err != nil {
			return nil, err
		}
		ann[live.IgnoreAnnotation] = string(b)
	}
	if delete(ann, live.AdoptedAnnotation); adopted {
		ann[live.AdoptedAnnotation] = "true"
	}
	if pre.absent {
		md["resourceVersion"] = "1"
	}
	if pre.uid != "" {
		md["uid"] = string(pre.uid)
	}
	if racing && pre.version != "" {
		md["resourceVersion"] = pre.version
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("manifest of %s: %w", it.Ref, err)
	}
	return out, nil
}

func object(parent map[string]any, key string) map[string]any {
	if m, ok := parent[key].(map[string]any); ok {
		return m
	}
	m := map[string]any{}
	parent[key] = m
	return m
}
