package kind

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The fields of the stack are kept beside those of an install, through encoding and copying.
func TestObjectRoundTrip(t *testing.T) {
	const text = `{"apiVersion":"shops.example.com/v1","kind":"Shop","metadata":{"name":"a","namespace":"b"},` +
		`"spec":{"size":2},"status":{"lastAppliedRevision":"r1","observedGeneration":1,` +
		`"conditions":[{"type":"Ready","status":"True","reason":"R","message":"","lastTransitionTime":null}],` +
		`"inventory":{"entries":[{"id":"x","component":"main","wave":0,"version":"v1"}]},` +
		`"url":"http://a","ports":[80,{"x":1.5}]}}`
	var o Object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	if o.Status.LastAppliedRevision != "r1" || len(o.Status.Conditions) != 1 || len(o.Status.Inventory.Entries) != 1 ||
		o.Status.Fields["url"] != "http://a" || len(o.Status.Fields) != 2 {
		t.Fatalf("%+v", o.Status)
	}
	raw, err := json.Marshal(o.DeepCopyObject())
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got["spec"], want["spec"]) ||
		!reflect.DeepEqual(got["status"].(map[string]any)["ports"], want["status"].(map[string]any)["ports"]) {
		t.Errorf("got %s", raw)
	}
}

// Only what follows the objects of an install may wait; a condition is written at once.
func TestOnlyFieldsChanged(t *testing.T) {
	before := &Object{Status: ObjectStatus{Fields: map[string]any{"url": "a"}}}
	for name, c := range map[string]struct {
		change func(*Object)
		want   bool
	}{
		"nothing": {func(*Object) {}, false},
		"a field": {func(o *Object) { o.Status.Fields["url"] = "b" }, true},
		"a field and the revision": {func(o *Object) {
			o.Status.Fields["url"], o.Status.LastAppliedRevision = "b", "main@sha1:2"
		}, false},
		"a condition": {func(o *Object) {
			o.Status.Conditions = []metav1.Condition{{Type: "Available", Status: metav1.ConditionTrue}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			after := before.DeepCopyObject().(*Object)
			c.change(after)
			if got := onlyFieldsChanged(before, after); got != c.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
