package engine

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// marks are the label and the annotation of every apply patch.
const marks = `"labels":{"ksctl.com/owner-id":"x"},"annotations":{"ksctl.com/mark":"x/local/KsctlInstall/ns/me|ns_a__ConfigMap"}`

func TestApplyPatch(t *testing.T) {
	cm := item("c", "a")
	zone := plan.Item{Object: stacks.Object{Ref: stacks.Ref{Group: "h.io", Kind: "Zone", Name: "z"}},
		ID: "_z_h.io_Zone"}
	withHints := cm
	sensitive := cm
	sensitive.Sensitive = true
	withHints.ReadyExpr, withHints.Ignore = "object.ok", []string{"/data/a~1b", `/x"y`}
	rbac := plan.Item{Object: stacks.Object{Ref: stacks.Ref{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole",
		Name: "system:x|y"}}}
	rbac.ID = rbac.Ref.ID()
	for name, tc := range map[string]struct {
		item     plan.Item
		manifest string
		pre      precondition
		adopted  bool
		want     string
	}{
		"unconditional": {cm, `{"kind":"ConfigMap","metadata":{"name":"a","namespace":"ns"},"data":{"n":"1"}}`,
			precondition{}, false,
			`{"kind":"ConfigMap","metadata":{"name":"a","namespace":"ns",` + marks + `},"data":{"n":"1"}}`},
		"create": {cm, `{"metadata":{"name":"a"}}`, precondition{absent: true}, false,
			`{"metadata":{"name":"a","resourceVersion":"1",` + marks + `}}`},
		"update": {cm, `{"metadata":{"name":"a"}}`, precondition{uid: "u-1", resourceVersion: "7"}, false,
			`{"metadata":{"name":"a","uid":"u-1",` + marks + `}}`},
		"labels and annotations in the manifest": {cm,
			`{"metadata":{"labels":{"a":"b","ksctl.com/owner-id":"theirs"},"annotations":{"c":"d","ksctl.com/mark":"theirs"}}}`, precondition{}, false,
			`{"metadata":{"labels":{"a":"b","ksctl.com/owner-id":"x"},"annotations":{"c":"d","ksctl.com/mark":"x/local/KsctlInstall/ns/me|ns_a__ConfigMap"}}}`},
		"no metadata": {cm, `{"kind":"ConfigMap"}`, precondition{}, false, `{"kind":"ConfigMap","metadata":{` + marks +
			`}}`},
		"null labels": {cm, `{"metadata":{"labels":null,"annotations":null}}`, precondition{}, false,
			`{"metadata":{` + marks + `}}`},
		"adopted": {cm, `{"metadata":{}}`, precondition{uid: "u-1"}, true,
			`{"metadata":{"uid":"u-1","labels":{"ksctl.com/owner-id":"x"},"annotations":{"ksctl.com/adopted":"true","ksctl.com/mark":"x/local/KsctlInstall/ns/me|ns_a__ConfigMap"}}}`},
		"ready expression and ignored paths": {withHints, `{"metadata":{}}`, precondition{}, false,
			`{"metadata":{"labels":{"ksctl.com/owner-id":"x"},"annotations":{"ksctl.com/mark":"x/local/KsctlInstall/ns/me|ns_a__ConfigMap",
			"ksctl.com/ready-expr":"object.ok","ksctl.com/ignore":"[\"/data/a~1b\",\"/x\\\"y\"]"}}}`},
		"values of a Secret": {sensitive, `{"metadata":{"annotations":{"ksctl.com/sensitive":"theirs"}}}`, precondition{},
			false, `{"metadata":{"labels":{"ksctl.com/owner-id":"x"},"annotations":{"ksctl.com/mark":` +
				`"x/local/KsctlInstall/ns/me|ns_a__ConfigMap","ksctl.com/sensitive":"true"}}}`},
		"cluster-scoped with a defaulted namespace": {zone, `{"metadata":{"name":"z","namespace":"ns"}}`,
			precondition{}, false,
			`{"metadata":{"name":"z","labels":{"ksctl.com/owner-id":"x"},"annotations":{"ksctl.com/mark":"x/local/KsctlInstall/ns/me|_z_h.io_Zone"}}}`},
		"name with every separator": {rbac, `{"metadata":{}}`, precondition{}, false,
			`{"metadata":{"labels":{"ksctl.com/owner-id":"x"},"annotations":{"ksctl.com/mark":"x/local/KsctlInstall/ns/me|_system__x|y_rbac.authorization.k8s.io_ClusterRole"}}}`},
		// A manifest from kubectl get -o yaml: each of these fields would make every request fail.
		"exported from a cluster": {cm,
			`{"metadata":{"name":"a","uid":"theirs","resourceVersion":"12345","managedFields":[{"manager":"kubectl"}],"annotations":{"ksctl.com/adopted":"true"}}}`,
			precondition{}, false, `{"metadata":{"name":"a",` + marks + `}}`},
		"numbers": {cm, `{"metadata":{},"spec":{"big":9007199254740993,"small":0.1,"whole":1.0}}`, precondition{},
			false,
			`{"metadata":{` + marks + `},"spec":{"big":9007199254740993,"small":0.1,"whole":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := applyPatch(json.RawMessage(tc.manifest), &tc.item, me, tc.pre, tc.adopted, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !jsonpatch.Equal(got, []byte(tc.want)) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			var doc struct {
				Metadata struct{ Annotations map[string]string }
			}
			if err := json.Unmarshal(got, &doc); err != nil {
				t.Fatal(err)
			}
			if m, err := live.ParseMark(doc.Metadata.Annotations[live.MarkAnnotation]); err != nil ||
				m != (live.Mark{Owner: me.String(), ID: tc.item.ID}) {
				t.Errorf("the mark is parsed as %+v, %v", m, err)
			}
			if strings.Contains(tc.manifest, "9007199254740993") && !strings.Contains(string(got), "9007199254740993") {
				t.Error("a number was rounded")
			}
		})
	}
	for _, bad := range []string{``, `[]`, `"x"`, `{`} {
		if _, err := applyPatch(json.RawMessage(bad), &cm, me, precondition{}, false, nil); err == nil ||
			!strings.Contains(err.Error(), "ConfigMap ns/a") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestApplyPatchKeepsFieldsOfOthers(t *testing.T) {
	const manifest = `{"spec":{"replicas":3,"items":[{"name":"a","image":"x"},{"name":"b","image":"y"}],"args":["1","2","3"]},"data":{"a/b":"1","c~d":"2","e":"3"}}`
	ours := func(path, value string) live.KeptField {
		return live.KeptField{Path: path, Value: json.RawMessage(value), Ours: true}
	}
	theirs := func(path string) live.KeptField { return live.KeptField{Path: path, Others: true} }
	at := func(at string, k live.KeptField) live.KeptField { k.At = at; return k }
	for name, tc := range map[string]struct {
		kept []live.KeptField
		want string
		// racing is true if the patch is valid only for the version that was read.
		racing bool
	}{
		"nothing kept": {nil, manifest, true}, // another client may be about to scale
		"owned only by us": {[]live.KeptField{ours("/spec/replicas", "5")},
			strings.Replace(manifest, `"replicas":3`, `"replicas":5`, 1), true},
		"owned by another manager": {[]live.KeptField{theirs("/spec/replicas")},
			strings.Replace(manifest, `"replicas":3,`, ``, 1), false},
		"one of us, one of another": {[]live.KeptField{theirs("/spec/replicas"), ours("/data/e", `"9"`)},
			strings.Replace(strings.Replace(manifest, `"replicas":3,`, ``, 1), `"e":"3"`, `"e":"9"`, 1), true},
		"owned by both": {[]live.KeptField{{Path: "/spec/replicas", Value: json.RawMessage("5"),
			Ours: true, Others: true}}, strings.Replace(manifest, `"replicas":3,`, ``, 1), false},
		"without owner": {[]live.KeptField{{Path: "/spec/replicas", Value: json.RawMessage("5")}},
			strings.Replace(manifest, `"replicas":3,`, ``, 1), false},
		"not in the manifest": {[]live.KeptField{theirs("/spec/paused"), theirs("/status/x/y"),
			theirs("/data/e/f"), theirs("/spec/items/9"), theirs("/spec/items/x")}, manifest, true},
		"escaped slash": {[]live.KeptField{ours("/data/a~1b", `"9"`)},
			strings.Replace(manifest, `"a/b":"1"`, `"a/b":"9"`, 1), true},
		"escaped tilde": {[]live.KeptField{theirs("/data/c~0d")},
			strings.Replace(manifest, `"c~d":"2",`, ``, 1), true},
		"in a list item, ours": {[]live.KeptField{ours("/spec/items/1/image", `"z"`)},
			strings.Replace(manifest, `"image":"y"`, `"image":"z"`, 1), true},
		"in a list item, another's": {[]live.KeptField{theirs("/spec/items/0/image")},
			strings.Replace(manifest, `,"image":"x"`, ``, 1), true},
		"list item is replaced": {[]live.KeptField{ours("/spec/args/1", `"9"`)},
			strings.Replace(manifest, `"1","2","3"`, `"1","9","3"`, 1), true},
		"list item is removed": {[]live.KeptField{theirs("/spec/args/1")},
			strings.Replace(manifest, `"1","2","3"`, `"1","3"`, 1), true},
		"last list item is removed": {[]live.KeptField{theirs("/spec/args/2")},
			strings.Replace(manifest, `"1","2","3"`, `"1","2"`, 1), true},
		"two list items are removed": {[]live.KeptField{theirs("/spec/args/0"), theirs("/spec/args/1")},
			strings.Replace(manifest, `"1","2","3"`, `"3"`, 1), true},
		"ours, not in the manifest": {[]live.KeptField{ours("/spec/deep/er", `{"x":1}`)},
			strings.Replace(manifest, `"replicas":3`, `"replicas":3,"deep":{"er":{"x":1}}`, 1), true},
		"no list item at the index": {[]live.KeptField{ours("/spec/args/7", `"x"`), ours("/spec/none/0", `"x"`)},
			manifest, true},
		"in an item with a key": {[]live.KeptField{
			at(`/spec/items/k:{"name":"b"}/image`, ours("/spec/items/*/image", `"z"`)),
			at(`/spec/items/k:{"name":"a"}/image`, theirs("/spec/items/*/image"))},
			strings.NewReplacer(`"image":"y"`, `"image":"z"`, `,"image":"x"`, ``).Replace(manifest), true},
		"in an item with a key that has a default": {[]live.KeptField{
			at(`/spec/items/k:{"name":"b","protocol":"TCP"}/image`, ours("/spec/items/*/image", `"z"`))},
			strings.Replace(manifest, `"image":"y"`, `"image":"z"`, 1), true},
		"in an item that a field selects": {[]live.KeptField{ours("/spec/items/[name=b]/image", `"z"`)},
			strings.Replace(manifest, `"image":"y"`, `"image":"z"`, 1), true},
		"in an item that left the manifest": {[]live.KeptField{
			at(`/spec/items/k:{"name":"c"}/image`, ours("/spec/items/*/image", `"z"`)),
			at(`/spec/none/k:{"name":"c"}/image`, ours("/spec/none/*/image", `"z"`))}, manifest, true},
		"in an item that is new in the manifest": {[]live.KeptField{
			at("/spec/items/-/image", live.KeptField{Path: "/spec/items/[name=b]/image"})}, manifest, true},
		"an item that others removed": {[]live.KeptField{{Path: "/spec/items/[name=a]"}},
			strings.Replace(manifest, `{"name":"a","image":"x"},`, ``, 1), true},
		"items by key and by index are removed": {[]live.KeptField{theirs("/spec/items/1"),
			at(`/spec/items/k:{"name":"a"}`, theirs("/spec/items/[name=a]"))},
			strings.Replace(manifest, `{"name":"a","image":"x"},{"name":"b","image":"y"}`, ``, 1), true},
		"null value": {[]live.KeptField{ours("/data/e", `null`)},
			strings.Replace(manifest, `"e":"3"`, `"e":null`, 1), true},
		"the whole manifest": {[]live.KeptField{theirs("/spec"), theirs("/data")}, `{}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			it := item("c", "a")
			got, err := applyPatch(json.RawMessage(manifest), &it, me, precondition{uid: "u", resourceVersion: "7"},
				false, tc.kept)
			if err != nil {
				t.Fatal(err)
			}
			var doc map[string]any
			if err := json.Unmarshal(got, &doc); err != nil {
				t.Fatal(err)
			}
			md := doc["metadata"].(map[string]any)
			if racing := md["resourceVersion"] == "7"; racing != tc.racing ||
				(!racing && md["resourceVersion"] != nil) {
				t.Errorf("resourceVersion %v, want it set: %t", md["resourceVersion"], tc.racing)
			}
			delete(doc, "metadata")
			rest, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if !jsonpatch.Equal(rest, []byte(tc.want)) {
				t.Errorf("got  %s\nwant %s", rest, tc.want)
			}
		})
	}
	it := item("c", "a")
	for _, bad := range []live.KeptField{{Path: "no-pointer"}, ours("/data/e", `{`)} {
		if _, err := applyPatch(json.RawMessage(manifest), &it, me, precondition{}, false,
			[]live.KeptField{bad}); err == nil || !strings.Contains(err.Error(), bad.Path) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
