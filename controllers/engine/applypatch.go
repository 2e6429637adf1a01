package engine

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
)

// precondition is the precondition of an apply request.
type precondition struct {
	// absent: the object must not exist. The request has a resourceVersion that no existing object
	// can have, so the API server responds with 409 if the object exists, and with 201 if not.
	absent bool
	// uid is the uid that the object must have.
	uid types.UID
	// resourceVersion is the version that the object must have if the request is valid only for
	// this version.
	resourceVersion string
}

// applyPatch returns the server-side apply patch of an item: the manifest, our label and marks, the
// precondition, and the live values of fields that others are allowed to change.
func applyPatch(manifest json.RawMessage, it *plan.Item, owner plan.OwnerKey, pre precondition, adopted bool,
	kept []live.KeptField) ([]byte, error) {
	var obj map[string]any
	if err := utiljson.Unmarshal(manifest, &obj); err != nil {
		return nil, fmt.Errorf("parsing the manifest of %s: %w", it.Ref, err)
	}
	foldStringData(it, obj)
	needsVersion, err := mergeKeptFields(obj, kept)
	if err != nil {
		return nil, fmt.Errorf("merging kept fields of %s: %w", it.Ref, err)
	}
	if it.Runs() { // the engine deletes it, once its success is recorded
		delete(nestedObject(obj, "spec"), "ttlSecondsAfterFinished")
	}
	md := nestedObject(obj, "metadata")
	// Manifests that were exported from a cluster contain fields of the API server.
	for _, field := range []string{"uid", "resourceVersion", "managedFields"} {
		delete(md, field)
	}
	if it.Namespace == "" {
		delete(md, "namespace")
	}
	nestedObject(md, "labels")[live.OwnerLabel] = owner.Installation
	ann := nestedObject(md, "annotations")
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
	if delete(ann, live.ReportAnnotation); it.Report != "" {
		ann[live.ReportAnnotation] = it.Report
	}
	if delete(ann, live.SensitiveAnnotation); it.Sensitive {
		ann[live.SensitiveAnnotation] = "true"
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
	if needsVersion && pre.resourceVersion != "" {
		md["resourceVersion"] = pre.resourceVersion
	}
	out, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding the manifest of %s: %w", it.Ref, err)
	}
	return out, nil
}

// nestedObject returns the object at a key. It creates an empty one if there is none.
func nestedObject(parent map[string]any, key string) map[string]any {
	if m, ok := parent[key].(map[string]any); ok {
		return m
	}
	m := map[string]any{}
	parent[key] = m
	return m
}

// foldStringData moves the stringData of a Secret into data. The API server does so, too, but then
// no field manager owns the keys in data, so that changes by others would not be detected.
func foldStringData(it *plan.Item, obj map[string]any) {
	plain, ok := obj["stringData"].(map[string]any)
	if it.Group != "" || it.Kind != "Secret" || !ok {
		return
	}
	data := nestedObject(obj, "data")
	for k, v := range plain {
		s, ok := v.(string)
		if !ok {
			return // the API server reports the error
		}
		data[k] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	delete(obj, "stringData")
}
