// Package stored compares the objects that an API server stores of two installs of one chart, such
// as one by Helm and one by us.
package stored

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks/generated"
)

// Namespace stands for the namespace of an install in content, so that installs can be compared.
const Namespace = "NAMESPACE"

// Objects are decoded objects by kind and name, with their namespace if it is another one than that
// of the install.
type Objects map[string]map[string]any

// ignored matches etcd keys of objects that the control plane, Helm or our controller makes for
// itself.
var ignored = regexp.MustCompile("^(" + strings.Join([]string{
	"(events|leases|pods|replicasets|controllerrevisions|services/endpoints|endpointslices)/.*",
	"(apps.ksctl.com|apiregistration.k8s.io)/.*", "namespaces/" + Namespace,
	"serviceaccounts/[^/]*/(default|deployer)", "clusterrolebindings/[^/]*-deployer",
	"configmaps/[^/]*/kube-root-ca.crt", "secrets/[^/]*/(sh.helm.release.v1.|" + generated.SecretNamePrefix + ").*",
}, "|") + ")$")

// Of returns the objects of an install from all objects in etcd, as JSON by their key: those whose
// key has the namespace of the install in it.
func Of(etcd map[string][]byte, namespace string) (Objects, error) {
	out := Objects{}
	for key, data := range etcd {
		neutral := strings.ReplaceAll(key, namespace, Namespace)
		if neutral == key || ignored.MatchString(neutral) {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil {
			return nil, err
		}
		out[identify(object, namespace)] = object
	}
	return out, nil
}

// identify returns the key of an object in Objects.
func identify(object map[string]any, namespace string) string {
	kind, _ := object["kind"].(string)
	name, _ := Field(object, "metadata.name").(string)
	if ns, _ := Field(object, "metadata.namespace").(string); ns != "" && ns != namespace {
		name = ns + "/" + name
	}
	return strings.ReplaceAll(kind+"/"+name, namespace, Namespace)
}

// Field returns the value at a path of keys with dots between them, or nil.
func Field(object map[string]any, path string) any {
	key, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return object[key]
	}
	below, _ := object[key].(map[string]any)
	return Field(below, rest)
}

// SetField sets the value at a path, if the object has it.
func SetField(object map[string]any, path string, value any) {
	key, rest, deeper := strings.Cut(path, ".")
	if below, ok := object[key].(map[string]any); ok && deeper {
		SetField(below, rest, value)
	} else if _, there := object[key]; there && !deeper {
		object[key] = value
	}
}

// Content returns a copy of an object without what differs between two objects with the same
// content: what the API server and controllers set, and the marks of Helm and ours.
func Content(object map[string]any, namespace string) map[string]any {
	uid, _ := Field(object, "metadata.uid").(string)
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	// A Job has its uid in the labels of its Pods.
	neutral := []string{namespace, Namespace}
	if uid != "" {
		neutral = append(neutral, uid, "UID")
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(strings.NewReplacer(neutral...).Replace(string(text))), &out); err != nil {
		panic(err) // the replaced values are names
	}
	delete(out, "status")
	metadata, _ := out["metadata"].(map[string]any)
	for _, key := range []string{"managedFields", "uid", "resourceVersion", "generation", "creationTimestamp"} {
		delete(metadata, key)
	}
	if spec, _ := out["spec"].(map[string]any); out["kind"] == "Service" {
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	}
	removeKeys(metadata, "labels", live.OwnerLabel, "app.kubernetes.io/managed-by")
	removeKeys(metadata, "annotations", live.MarkAnnotation, live.ResultAnnotation, live.HelmReleaseNameAnnotation,
		"meta.helm.sh/release-namespace", "deployment.kubernetes.io/revision")
	// The API server copies the labels of its Pods to a Job without labels. Ours have a label.
	if out["kind"] == "Job" && reflect.DeepEqual(metadata["labels"], Field(out, "spec.template.metadata.labels")) {
		delete(metadata, "labels")
	}
	return out
}

// removeKeys removes keys of a mapping, and the mapping if nothing is left.
func removeKeys(from map[string]any, field string, keys ...string) {
	m, _ := from[field].(map[string]any)
	for _, key := range keys {
		delete(m, key)
	}
	if len(m) == 0 {
		delete(from, field)
	}
}

// Difference is a field that differs between two objects.
type Difference struct {
	Object string
	// Field is the path of the field, with dots between the keys. Empty if one side lacks the
	// object.
	Field string
}

// Differences returns the fields that differ, sorted. Lists are compared as a whole.
func Differences(a, b Objects) (out []Difference) {
	all := Objects{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if (a[name] == nil) != (b[name] == nil) {
			out = append(out, Difference{Object: name})
			continue
		}
		for _, field := range differentFields("", a[name], b[name]) {
			out = append(out, Difference{Object: name, Field: field})
		}
	}
	return out
}

func differentFields(path string, a, b any) (out []string) {
	before, isMap := a.(map[string]any)
	after, areMaps := b.(map[string]any)
	if !isMap || !areMaps {
		if reflect.DeepEqual(a, b) {
			return nil
		}
		return []string{strings.TrimPrefix(path, ".")}
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		out = append(out, differentFields(path+"."+key, before[key], after[key])...)
	}
	return out
}
