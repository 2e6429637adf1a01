package live

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// itemFields returns an object with a list whose items have keys, with nested lists, an atomic list
// and a map. Another manager owns the value x of the item b.
func itemFields(t *testing.T, pointer string) *unstructured.Unstructured {
	t.Helper()
	const body = `"list": [{"name": "b", "port": 80, "x": 2, "args": ["p", "q"]}, {"name": "a/b", "port": 80, "x": 1,
		"sub": [{"name": "s", "y": 5}, {"name": "u", "y": 6}]}], "atomic": [{"id": "i", "w": 1}, {"id": "j", "w": 2}],
		"map": {"*": 1, "[name=b]": 2}`
	const ours = `{"f:atomic": {}, "f:map": {"f:*": {}, "f:[name=b]": {}}, "f:list": {
		"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:args": {}},
		"k:{\"name\":\"a/b\"}": {".": {}, "f:name": {}, "f:x": {}, "f:sub": {
			"k:{\"name\":\"s\"}": {".": {}, "f:y": {}}, "k:{\"name\":\"u\"}": {".": {}, "f:y": {}}}}}}`
	return withIgnored(objectWithManagedFields(t, "Thing", body, ours,
		`{"f:list": {"k:{\"name\":\"b\"}": {"f:x": {}}}}`), fmt.Sprintf("[%q]", pointer))
}

func TestIgnoredPathsSelectListItems(t *testing.T) {
	const a, b = `/list/k:{"name":"a~1b"}`, `/list/k:{"name":"b"}`
	for path, want := range map[string]string{
		"/list/[name=b]/x":          b + "/x=2 others",
		"/list/[name=a~1b]/x":       a + "/x=1 ours",
		"/list/[port=80]/x":         b + "/x=2 others, " + a + "/x=1 ours",
		"/list/*/x":                 b + "/x=2 others, " + a + "/x=1 ours",
		"/list/*/sub/*/y":           b + "/sub/-/y=, " + a + `/sub/k:{"name":"s"}/y=5 ours, ` + a + `/sub/k:{"name":"u"}/y=6 ours`,
		"/list/1/sub/[name=u]/y":    `/list/1/sub/k:{"name":"u"}/y=6 ours`,
		"/list/[name=b]/args/1":     b + `/args/1="q" ours`,
		"/list/[name=b]/args/*":     b + `/args=["p","q"] ours`,
		"/list/[name=b]/none":       b + "/none=",
		"/list/[name=c]/x":          "/list/-/x=",
		"/list/7/x":                 "/list/-/x=",
		"/none/*/x":                 "/none/-/x=",
		"/none/[name=b]/x/[name=c]": "/none/-/x/[name=c]=",
		"/list/[name=c]":            "=",
		"/list/[name]/x":            "=",
		"/list/0/x":                 "=2 others",
		"/map/*":                    "=1 ours",
		"/map/[name=b]":             "=2 ours",
		"/atomic/[id=j]/w":          "=2 ours",
		"/atomic/*/w":               "/atomic/0/w=1 ours, /atomic/1/w=2 ours",
	} {
		o, err := Project(itemFields(t, path))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, k := range o.KeptFields {
			if k.Path != path {
				t.Errorf("%s: the path is %s", path, k.Path)
			}
			text := k.At + "=" + string(k.Value)
			if k.Ours {
				text += " ours"
			}
			if k.Others {
				text += " others"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: got  %s\nwant %s", path, text, want)
		}
	}
}

// The number of fields and the memory of their values are bounded.
func TestIgnoredPathsExpandToBoundedFields(t *testing.T) {
	items := strings.Repeat(`{"v": "x"}, `, maxIgnoredFields) + `{"v": "x"}`
	o, err := Project(withIgnored(objectWithManagedFields(t, "Thing", `"a": [`+items+`]`, `{"f:a": {}}`), `["/a/*/v"]`))
	if err != nil {
		t.Fatal(err)
	}
	values := 0
	for _, k := range o.KeptFields {
		if k.Withheld == (k.Value != nil) {
			t.Fatalf("%+v", k)
		}
		if !k.Withheld {
			values++
		}
	}
	if len(o.KeptFields) != maxIgnoredFields || values != maxIgnoredPaths {
		t.Errorf("%d fields with %d values", len(o.KeptFields), values)
	}
}

// An ignored field of an item is no drift, wherever the item is in its list; every other field is.
func TestOwnedHashExcludesIgnoredFieldsOfItems(t *testing.T) {
	const ours = `{"f:a": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:v": {}, "f:args": {}}},
		"f:b": {"k:{\"name\":\"x\"}": {".": {}, "f:name": {}, "f:v": {}}}}`
	const other = `{"name": "o", "v": 9, "args": []}`
	const before = `"a": [{"name": "x", "v": 1, "args": ["p", "q"]}], "b": [{"name": "x", "v": 1}]`
	for _, tc := range []struct {
		name, ignore, body string
		same               bool
	}{
		{"its value", `["/a/[name=x]/v"]`, `"a": [{"name": "x", "v": 2, "args": ["p", "q"]}], "b": [{"name": "x", "v": 1}]`,
			true},
		{"its value in another place", `["/a/*/v"]`,
			`"a": [` + other + `, {"name": "x", "v": 2, "args": ["p", "q"]}], "b": [{"name": "x", "v": 1}]`, true},
		{"a part of an atomic list in another place", `["/a/[name=x]/args/1"]`,
			`"a": [` + other + `, {"name": "x", "v": 1, "args": ["p", "z"]}], "b": [{"name": "x", "v": 1}]`, true},
		{"another part of an atomic list", `["/a/*/args/1"]`,
			`"a": [` + other + `, {"name": "x", "v": 1, "args": ["z", "q"]}], "b": [{"name": "x", "v": 1}]`, false},
		{"another field", `["/a/[name=x]/v"]`, `"a": [{"name": "x", "v": 1, "args": ["z"]}], "b": [{"name": "x", "v": 1}]`,
			false},
		{"the field of another list", `["/a/*/v"]`,
			`"a": [{"name": "x", "v": 1, "args": ["p", "q"]}], "b": [{"name": "x", "v": 2}]`, false},
		{"the field of another item", `["/a/[name=o]/v"]`,
			`"a": [{"name": "x", "v": 2, "args": ["p", "q"]}], "b": [{"name": "x", "v": 1}]`, false},
	} {
		a := ownedHashOf(t, withIgnored(objectWithManagedFields(t, "Thing", before, ours), tc.ignore))
		b := ownedHashOf(t, withIgnored(objectWithManagedFields(t, "Thing", tc.body, ours), tc.ignore))
		if (a == b) != tc.same {
			t.Errorf("%s: the hashes are equal: %v, want %v", tc.name, a == b, tc.same)
		}
	}
}

func TestFindItem(t *testing.T) {
	list := []any{map[string]any{"port": int64(80)}, map[string]any{"port": int64(80), "protocol": "UDP"},
		map[string]any{"port": int64(81), "on": true, "half": 0.5}, "x"}
	for token, want := range map[string]int{"0": 0, "3": 3, "4": -1, "-1": -1, "-": -1, "*": -1, "x": -1, "": -1,
		`k:{"port":80,"protocol":"TCP"}`: 0, `k:{"port":80,"protocol":"UDP"}`: 1, `k:{"port":82}`: -1, `k:{`: -1,
		`v:"x"`:     -1,
		"[port=81]": 2, "[on=true]": 2, "[half=0.5]": 2, "[protocol=UDP]": 1,
		"[protocol=]": -1, "[=x]": -1, "[port]": -1} {
		if got := FindItem(list, token); got != want {
			t.Errorf("%s: got %d, want %d", token, got, want)
		}
	}
}
