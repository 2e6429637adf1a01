package live

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestProjectResult(t *testing.T) {
	long := `{"message": "` + strings.Repeat("x", MaxResultBytes) + `"}`
	for name, tc := range map[string]struct {
		kind, annotation string
		recorded         bool
		result, message  string
	}{
		"none":  {"Job", "-", false, "", ""},
		"empty": {"Job", "", true, "", ""},
		"a message": {"Job", ` {"message": "no\ntable", "n": 3}`, true, `{"message": "no\ntable", "n": 3}`,
			"no table"},
		"a number":   {"Job", "3", true, "3", ""},
		"other type": {"Job", `{"message": 3}`, true, `{"message": 3}`, ""},
		"no JSON":    {"Job", "done", true, "", ""},
		"too long":   {"Job", long, true, "", ""},
		"other kind": {"CronJob", "{}", false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": tc.kind,
				"metadata": map[string]any{"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}}
			if tc.annotation != "-" {
				u.SetAnnotations(map[string]string{ResultAnnotation: tc.annotation})
			}
			o, err := Project(u)
			if err != nil {
				t.Fatal(err)
			}
			o = pack(&o, &interner{}).unpack(o.Ref.GroupKind(), objectKey{o.Ref.Namespace, o.Ref.Name})
			if o.ResultRecorded != tc.recorded || string(o.Result) != tc.result || o.ResultMessage() != tc.message {
				t.Errorf("got %v, %q, %q", o.ResultRecorded, o.Result, o.ResultMessage())
			}
		})
	}
}

// The owner is notified of a result.
func TestResultsDifferForOwner(t *testing.T) {
	without, with := pack(&Object{UID: "u"}, &interner{}), pack(&Object{UID: "u", ResultRecorded: true}, &interner{})
	other := pack(&Object{UID: "u", ResultRecorded: true, Result: []byte("3")}, &interner{})
	if !without.differsForOwner(with) || !with.differsForOwner(other) || with.differsForOwner(with) {
		t.Error("a change of the result is not noticed")
	}
}
