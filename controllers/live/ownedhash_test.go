package live

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// objectWithManagedFields returns an object with a field set of ours and field sets of others.
func objectWithManagedFields(t *testing.T, kind, body, ours string, others ...string) *unstructured.Unstructured {
	t.Helper()
	entries := []string{fmt.Sprintf(`{"manager": %q, "operation": "Apply", "apiVersion": "x.io/v1", "fieldsV1": %s}`,
		FieldManager, ours)}
	for _, o := range others {
		entries = append(entries, fmt.Sprintf(`{"manager": "other", "operation": "Update", "fieldsV1": %s}`, o))
	}
	return object(t, "x.io/v1", kind,
		fmt.Sprintf(`"metadata": {"name": "x", "managedFields": [%s]}, %s`, strings.Join(entries, ","), body))
}

func ownedHashOf(t *testing.T, u *unstructured.Unstructured) string {
	t.Helper()
	o, err := Project(u)
	if err != nil {
		t.Fatal(err)
	}
	return o.OwnedHash
}

func TestOwnedHashDetectsChanges(t *testing.T) {
	for _, tc := range []struct {
		name, ours, a, b string
		same             bool
	}{
		{"a value", `{"f:a": {}}`, `"a": 1`, `"a": 2`, false},
		{"a field that is not owned", `{"f:a": {}}`, `"a": 1`, `"a": 1, "b": 2`, true},
		{"absent and null", `{"f:a": {}}`, `"c": 1`, `"a": null`, false},
		{"absent and empty", `{"f:a": {}}`, `"c": 1`, `"a": {}`, false},
		{"types", `{"f:a": {}}`, `"a": 1`, `"a": "1"`, false},
		{"false and null", `{"f:a": {}}`, `"a": false`, `"a": null`, false},
		{"2 and 2.0", `{"f:a": {}}`, `"a": 2`, `"a": 2.0`, true},
		{"2 and 2.5", `{"f:a": {}}`, `"a": 2`, `"a": 2.5`, false},
		{"the order of keys", `{"f:a": {}}`, `"a": {"x": 1, "y": 2}`, `"a": {"y": 2, "x": 1}`, true},
		{"the order of an atomic list", `{"f:a": {}}`, `"a": [1, 2]`, `"a": [2, 1]`, false},
		{"the boundary of a nested list", `{"f:a": {}}`, `"a": [[1], 2]`, `"a": [[1, 2]]`, false},
		{"the boundary of a string", `{"f:a": {}, "f:b": {}}`, `"a": "x", "b": "yz"`, `"a": "xy", "b": "z"`, false},
		{"the order of items with a key", `{"f:a": {"k:{\"n\":1}": {".": {}, "f:v": {}}}}`,
			`"a": [{"n": 1, "v": 1}, {"n": 2, "v": 2}]`, `"a": [{"n": 2, "v": 3}, {"n": 1, "v": 1}]`, true},
		{"an item with a key", `{"f:a": {"k:{\"n\":1}": {".": {}, "f:v": {}}}}`, `"a": [{"n": 1, "v": 1}]`,
			`"a": [{"n": 1, "v": 2}]`, false},
		{"an item with a key of two fields", `{"f:a": {"k:{\"n\":1,\"p\":\"TCP\"}": {".": {}, "f:v": {}}}}`,
			`"a": [{"n": 1, "p": "UDP", "v": 2}, {"n": 1, "p": "TCP", "v": 1}]`,
			`"a": [{"n": 1, "p": "UDP", "v": 3}, {"n": 1, "p": "TCP", "v": 1}]`, true},
		{"a removed item", `{"f:a": {"k:{\"n\":1}": {".": {}}}}`, `"a": [{"n": 1}]`, `"a": [{"n": 2}]`, false},
		{"a value of a set", `{"f:a": {"v:\"x\"": {}}}`, `"a": ["x", "y"]`, `"a": ["z", "x"]`, true},
		{"a value removed from a set", `{"f:a": {"v:\"x\"": {}}}`, `"a": ["x"]`, `"a": ["y"]`, false},
		{"a number of a set", `{"f:a": {"v:1": {}}}`, `"a": [1]`, `"a": [2]`, false},
		{"an index of a list", `{"f:a": {"i:1": {}}}`, `"a": [1, 2]`, `"a": [5, 2]`, true},
		{"the value of replicas", `{"f:spec": {"f:replicas": {}}}`, `"spec": {"replicas": 1}`,
			`"spec": {"replicas": 2}`, true},
		{"no owned field", `{}`, `"a": 1`, `"a": 2`, true},
	} {
		a, b := ownedHashOf(t, objectWithManagedFields(t, "Thing", tc.a, tc.ours)),
			ownedHashOf(t, objectWithManagedFields(t, "Thing", tc.b, tc.ours))
		if (a == b) != tc.same {
			t.Errorf("%s: hashes of %s and %s are equal: %v, want %v", tc.name, tc.a, tc.b, a == b, tc.same)
		}
	}
}

// Fields of other managers inside a value that we own as a whole do not count. Fields without an
// owner do.
func TestOwnedHashExcludesFieldsOfOthers(t *testing.T) {
	alone := ownedHashOf(t, objectWithManagedFields(t, "Thing", `"a": {}`, `{"f:a": {}}`))
	for _, tc := range []struct {
		name, body, others string
		same               bool
	}{
		{"a field", `"a": {"x": 1}`, `{"f:a": {"f:x": {}}}`, true},
		{"a map", `"a": {"x": {"y": 1}}`, `{"f:a": {"f:x": {".": {}, "f:y": {}}}}`, true},
		{"a map without an owner of the map itself", `"a": {"x": {"y": 1}}`, `{"f:a": {"f:x": {"f:y": {}}}}`, true},
		{"a field without an owner beside a field of others", `"a": {"x": 1, "z": 2}`, `{"f:a": {"f:x": {}}}`, false},
		{"a field without an owner", `"a": {"x": 1}`, `{"f:b": {}}`, false},
		{"a field inside a value that others own as a whole", `"a": {"x": 1}`, `{"f:a": {}}`, false},
	} {
		if got := ownedHashOf(t,
			objectWithManagedFields(t, "Thing", tc.body, `{"f:a": {}}`, tc.others)); (got == alone) != tc.same {
			t.Errorf("%s: the hash equals the hash without it: %v, want %v", tc.name, got == alone, tc.same)
		}
	}
	list := ownedHashOf(t, objectWithManagedFields(t, "Thing", `"a": []`, `{"f:a": {}}`))
	theirs := ownedHashOf(t, objectWithManagedFields(t, "Thing", `"a": [{"n": 1, "v": 2}, "s"]`, `{"f:a": {}}`,
		`{"f:a": {"k:{\"n\":1}": {".": {}, "f:v": {}}, "v:\"s\"": {}}}`))
	if list != theirs {
		t.Error("items of others in an empty list of ours change the hash")
	}
}

func TestItemFinderFind(t *testing.T) {
	for _, n := range []int{1, minItemsForTable - 1, minItemsForTable, 200} {
		var items, set []any
		for i := range n {
			items = append(items, map[string]any{"name": fmt.Sprintf("i%d", i), "port": int64(i % 2)})
			set = append(set, fmt.Sprintf("s%d", i))
		}
		byKey, byValue := itemFinder{list: items}, itemFinder{list: set}
		for i := range n {
			if got := byKey.find(fmt.Sprintf(`k:{"name":"i%d"}`, i)); got != i {
				t.Errorf("%d items: item %d by name: got %d", n, i, got)
			}
			if got := byKey.find(fmt.Sprintf(`k:{"name":"i%d","port":%d}`, i, i%2)); got != i {
				t.Errorf("%d items: item %d by name and port: got %d", n, i, got)
			}
			if got := byValue.find(fmt.Sprintf(`v:"s%d"`, i)); got != i {
				t.Errorf("%d items: value %d: got %d", n, i, got)
			}
		}
		for _, key := range []string{`k:{"name":"x"}`, `k:{"name":"i0","port":7}`, `k:{"other":1}`, `k:{}`, `k:`,
			`v:"x"`, `v:`, "i:-1", "i:9999", "i:x", "z:1", ""} {
			if got := byKey.find(key); got != -1 {
				t.Errorf("%d items: key %q: got %d, want -1", n, key, got)
			}
		}
	}
}

func TestDrifted(t *testing.T) {
	a, b := strings.Repeat("a", ownedHashLen), strings.Repeat("b", ownedHashLen)
	for _, tc := range []struct {
		baseline, owned string
		want            bool
	}{
		{a, a, false}, {a, b, true},
		{a + "r", a + "r", false}, {a + "r", a, true}, {a, a + "r", false}, {a + "r", b + "r", true},
		{"", a, true}, {"", "", false}, {"short", a, true},
	} {
		if got := Drifted(tc.baseline, tc.owned); got != tc.want {
			t.Errorf("Drifted(%q, %q) = %v", tc.baseline, tc.owned, got)
		}
	}
}

// The hash of a Secret is published: it must not allow anybody to guess values.
func TestSecretDataIsHashedWithKey(t *testing.T) {
	secret := func(value string) *unstructured.Unstructured {
		u := objectWithManagedFields(t, "Secret", fmt.Sprintf(`"data": {"password": %q}`, value),
			`{"f:data": {"f:password": {}}}`)
		u.SetAPIVersion("v1")
		return u
	}
	hash := func(u *unstructured.Unstructured, key string) string {
		t.Helper()
		o, _, err := project(u, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return o.OwnedHash
	}
	if hash(secret("a"), "") != hash(secret("b"), "") {
		t.Error("without a key the value changes the hash")
	}
	if hash(secret("a"), "k") == hash(secret("b"), "k") {
		t.Error("with a key the value does not change the hash")
	}
	if hash(secret("a"), "k") == hash(secret("a"), "other") {
		t.Error("the key does not change the hash")
	}
}

// So is the hash of an object with values of a Secret.
func TestSensitiveObjectsAreHashedWithKey(t *testing.T) {
	hash := func(value, sensitive, key string) string {
		t.Helper()
		u := objectWithManagedFields(t, "ConfigMap", fmt.Sprintf(`"data": {"password": %q}`, value),
			`{"f:data": {"f:password": {}}}`)
		u.SetAPIVersion("v1")
		u.SetAnnotations(map[string]string{SensitiveAnnotation: sensitive})
		o, _, err := project(u, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return o.OwnedHash
	}
	if hash("a", "", "k") != hash("a", "", "other") {
		t.Error("the key changes the hash of another object")
	}
	if hash("a", "true", "k") == hash("a", "true", "other") || hash("a", "true", "k") == hash("b", "true", "k") {
		t.Error("the key or the value does not change the hash")
	}
}

func TestOtherManager(t *testing.T) {
	entry := func(manager, operation, subresource, at string) string {
		return fmt.Sprintf(`{"manager": %q, "operation": %q, "subresource": %q, "time": %q, "fieldsV1": {"f:a": {}}}`,
			manager, operation, subresource, at)
	}
	u := object(t, "x.io/v1", "Thing", `"metadata": {"name": "x", "managedFields": [`+strings.Join([]string{
		entry("late", "Update", "", "2026-01-02T00:00:00Z"),
		entry("early", "Update", "", "2026-01-01T00:00:00Z"),
		entry("controller", "Update", "status", "2026-01-09T00:00:00Z"),
		entry(FieldManager, "Apply", "", "2026-01-09T00:00:00Z"),
		entry(FieldManager, "Update", "", "2026-01-09T00:00:00Z"),
	}, ",")+`]}`)
	o, err := Project(u)
	if err != nil || o.OtherManager != "late" {
		t.Errorf("%q, %v", o.OtherManager, err)
	}
}

// Fields that FieldManager wrote with a patch do not belong to its apply.
func TestParseManagedFieldsSeparatesApplyFromUpdate(t *testing.T) {
	entry := func(operation, field string) any {
		return map[string]any{"manager": FieldManager, "operation": operation, "apiVersion": "v1",
			"fieldsV1": map[string]any{field: map[string]any{}}}
	}
	m := parseManagedFields(map[string]any{"managedFields": []any{entry("Apply", "f:applied"),
		entry("Update", "f:patched")}})
	if _, ok := m.ours["f:applied"]; !ok || len(m.ours) != 1 {
		t.Errorf("ours %v", m.ours)
	}
	if len(m.others) != 1 {
		t.Errorf("others %v", m.others)
	}
}
