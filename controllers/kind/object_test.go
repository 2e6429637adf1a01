package kind

import (
	"encoding/json"
	"reflect"
	"testing"
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
