package live

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/internal/golden"
	"github.com/ksctl/gitops/stacks"
)

// Inventories store these hashes as baselines: with a different hash each object counts as drifted.
func TestGoldenOwnedHash(t *testing.T) {
	const replicas = `{"f:spec": {"f:replicas": {}}}`
	const item = `{"f:a": {"k:{\"n\":1,\"p\":\"TCP\"}": {".": {}, "f:n": {}, "f:p": {}, "f:v": {}}}}`
	thing := func(body, ours string, others ...string) *unstructured.Unstructured {
		return objectWithManagedFields(t, "Thing", body, ours, others...)
	}
	var out bytes.Buffer
	for _, c := range []struct {
		name   string
		object *unstructured.Unstructured
	}{
		{"nothing", thing(`"a": 1`, `{}`)},
		{"absent", thing(`"b": 1`, `{"f:a": {}}`)},
		{"null", thing(`"a": null`, `{"f:a": {}}`)},
		{"true", thing(`"a": true`, `{"f:a": {}}`)},
		{"false", thing(`"a": false`, `{"f:a": {}}`)},
		{"a string", thing(`"a": "x"`, `{"f:a": {}}`)},
		{"an empty string", thing(`"a": ""`, `{"f:a": {}}`)},
		{"a string of 200 bytes", thing(fmt.Sprintf(`"a": %q`, strings.Repeat("x", 200)), `{"f:a": {}}`)},
		{"an integer", thing(`"a": 7`, `{"f:a": {}}`)},
		{"a negative integer", thing(`"a": -7`, `{"f:a": {}}`)},
		{"a large integer", thing(`"a": 9007199254740993`, `{"f:a": {}}`)},
		{"a fraction", thing(`"a": 2.5`, `{"f:a": {}}`)},
		{"a whole fraction", thing(`"a": 2.0`, `{"f:a": {}}`)},
		{"an empty map", thing(`"a": {}`, `{"f:a": {}}`)},
		{"a map", thing(`"a": {"y": [1, "2", null], "x": {"z": true}}`, `{"f:a": {}}`)},
		{"an empty list", thing(`"a": []`, `{"f:a": {}}`)},
		{"a list", thing(`"a": [1, "2", {"x": 3}, []]`, `{"f:a": {}}`)},
		{"nested fields", thing(`"a": {"x": 1, "y": {"z": 2}}`, `{"f:a": {".": {}, "f:x": {}, "f:y": {"f:z": {}}}}`)},
		{"two fields", thing(`"b": 2, "a": 1`, `{"f:b": {}, "f:a": {}}`)},
		{"an item with keys", thing(`"a": [{"n": 2, "v": 5}, {"n": 1, "p": "TCP", "v": 4}]`, item)},
		{"an item that is gone", thing(`"a": [{"n": 2, "v": 5}]`, item)},
		{"an item of many", thing(`"a": `+manyThings(), item)},
		{"a value of a set", thing(`"a": ["x", "y"]`, `{"f:a": {"v:\"y\"": {}}}`)},
		{"a place in a list", thing(`"a": [1, 2]`, `{"f:a": {"i:1": {}}}`)},
		{"a map with fields of others", thing(`"a": {"x": 1, "z": 2}`, `{"f:a": {}}`, `{"f:a": {"f:x": {}}}`)},
		{"a list with items of others", thing(`"a": [{"n": 1, "v": 2}, "s"]`, `{"f:a": {}}`,
			`{"f:a": {"k:{\"n\":1}": {".": {}, "f:v": {}}}}`)},
		{"an ignored field", withIgnored(thing(`"a": 1, "b": {"c": 2, "d": 3}`,
			`{"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}}`), `["/b/c"]`)},
		{"an ignored part of a value", withIgnored(thing(`"a": {"x": 1, "y": [1, 2]}`, `{"f:a": {}}`),
			`["/a/x", "/a/y/0"]`)},
		{"an ignored part of a value of others", withIgnored(thing(`"a": {"x": 1, "y": 2}`, `{"f:b": {}}`,
			`{"f:a": {}}`),
			`["/a/x"]`)},
		{"an ignored item", withIgnored(thing(`"a": [{"n": 2}, {"n": 1, "p": "TCP", "v": 4}]`, item), `["/a/1/v"]`)},
		{"replicas", thing(`"spec": {"replicas": 3}`, replicas)},
		{"replicas of others", thing(`"spec": {"replicas": 3}`, `{"f:a": {}}`, replicas)},
		{"ignored replicas", withIgnored(thing(`"spec": {"replicas": 3}`, replicas), `["/spec/replicas"]`)},
		{"an ignored spec", withIgnored(thing(`"spec": {"replicas": 3}`, replicas), `["/spec"]`)},
		{"replicas that the scale subresource wrote", scaledObject(t, `"spec": {"replicas": 3}`, replicas)},
		{"replicas that the scale subresource set to 0", scaledObject(t, `"spec": {"replicas": 0}`, `{"f:spec": {}}`)},
	} {
		fmt.Fprintf(&out, "%s: %s\n", c.name, goldenOwned(t, c.object, "key"))
	}
	golden.Equal(t, "owned.txt", out.Bytes())
}

// The data of a Secret enters the hash with a key only.
func TestGoldenOwnedHashOfSecrets(t *testing.T) {
	const both = `{"f:data": {"f:password": {}}, "f:type": {}}`
	secret := func(body, ours string, others ...string) *unstructured.Unstructured {
		u := objectWithManagedFields(t, "Secret", body, ours, others...)
		u.SetAPIVersion("v1")
		return u
	}
	var out bytes.Buffer
	for _, c := range []struct {
		name   string
		object *unstructured.Unstructured
	}{
		{"a value", secret(`"data": {"password": "eA=="}, "type": "Opaque"`, both)},
		{"a value of stringData", secret(`"data": {"password": "eA=="}`, `{"f:stringData": {"f:password": {}}}`)},
		{"a value that is gone", secret(`"data": {}`, both)},
		{"a value of others", secret(`"data": {"password": "eA=="}`, both, `{"f:data": {"f:password": {}}}`)},
		{"all data", secret(`"data": {"password": "eA==", "user": "eQ=="}`, `{"f:data": {}}`)},
	} {
		for _, key := range []string{"", "key"} {
			fmt.Fprintf(&out, "%s, with the key %q: %s\n", c.name, key, goldenOwned(t, c.object, key))
		}
	}
	golden.Equal(t, "owned-secrets.txt", out.Bytes())
}

func goldenOwned(t *testing.T, u *unstructured.Unstructured, key string) string {
	t.Helper()
	o, _, err := project(u, []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	if Drifted(o.OwnedHash, o.OwnedHash) {
		t.Errorf("%s counts as drifted from itself", o.OwnedHash)
	}
	return o.OwnedHash
}

func withIgnored(u *unstructured.Unstructured, pointers string) *unstructured.Unstructured {
	u.SetAnnotations(map[string]string{IgnoreAnnotation: pointers})
	return u
}

// scaledObject returns an object with fields that another manager wrote through the scale
// subresource.
func scaledObject(t *testing.T, body, theirs string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "x.io/v1", "Thing", fmt.Sprintf(`"metadata": {"name": "x", "managedFields": [`+
		`{"manager": %q, "operation": "Apply", "apiVersion": "x.io/v1", "fieldsV1": {"f:a": {}}}, `+
		`{"manager": "hpa", "operation": "Update", "subresource": "scale", "fieldsV1": %s}]}, %s`, FieldManager, theirs,
		body))
}

// manyThings returns a list that is long enough for a lookup table.
func manyThings() string {
	var items []string
	for i := range 2 * minItemsForTable {
		items = append(items, fmt.Sprintf(`{"n": %d, "p": "TCP", "v": %d}`, i, 2*i))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// Objects in existing clusters carry these marks.
func TestGoldenMarks(t *testing.T) {
	ref := func(group, kind, namespace, name string) string {
		return stacks.Ref{Group: group, Kind: kind, Namespace: namespace, Name: name}.ID()
	}
	marks := []Mark{
		{},
		{Owner: "prod/local/KsctlInstall/apps/web", ID: ref("", "ConfigMap", "apps", "web")},
		{Owner: "prod/team.eu/KsctlInstall/apps/web", ID: ref("apps", "Deployment", "apps", "web")},
		{Owner: "prod/secret:team.eu:config/KsctlRemove/apps/web", ID: ref("", "Namespace", "", "apps")},
		{Owner: "prod/local/KsctlInstall/apps/web", ID: ref("rbac.authorization.k8s.io", "ClusterRole", "",
			"system:a|b")},
	}
	var out bytes.Buffer
	for _, m := range marks {
		fmt.Fprintln(&out, m)
	}
	golden.Equal(t, "marks.txt", out.Bytes())
	for i, line := range strings.Split(strings.TrimSpace(string(golden.Read(t, "marks.txt"))), "\n")[1:] {
		if m, err := ParseMark(line); err != nil || m != marks[i+1] {
			t.Errorf("ParseMark(%s) = %+v, %v", line, m, err)
		}
	}
	if _, err := ParseMark(marks[0].String()); err == nil {
		t.Error("ParseMark accepts a mark without an owner")
	}
}

func TestGoldenNames(t *testing.T) {
	var out bytes.Buffer
	for _, c := range [][2]string{{"OwnerLabel", OwnerLabel}, {"MarkAnnotation", MarkAnnotation}, {"AdoptedAnnotation",
		AdoptedAnnotation},
		{"ReadyExprAnnotation", ReadyExprAnnotation}, {"IgnoreAnnotation", IgnoreAnnotation},
		{"SensitiveAnnotation", SensitiveAnnotation},
		{"PreventDeletionAnnotation", PreventDeletionAnnotation}, {"FieldManager", FieldManager}} {
		fmt.Fprintf(&out, "%s = %s\n", c[0], c[1])
	}
	golden.Equal(t, "names.txt", out.Bytes())
}
