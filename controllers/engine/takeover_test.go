package engine

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

func TestRemoveFormerFields(t *testing.T) {
	const body = `"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": {"replicas": 2,
		"paused": true, "list": [{"name": "a", "x": 1}, {"name": "b"}], "set": ["x", "y"]}`
	const both = `"f:replicas":{},"f:list":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}`
	helm := func(of string) metav1.ManagedFieldsEntry { return fields("helm", "Apply", "v1", `"f:spec":{`+of+`}`) }
	for name, tc := range map[string]struct {
		before []metav1.ManagedFieldsEntry
		ignore []string
		want   string
	}{
		"what the stack has": {before: []metav1.ManagedFieldsEntry{helm(both)}},
		"a field": {before: []metav1.ManagedFieldsEntry{helm(both + `,"f:paused":{}`)},
			want: "/spec/paused"},
		"an ignored field": {before: []metav1.ManagedFieldsEntry{helm(both + `,"f:paused":{}`)},
			ignore: []string{"/spec/paused"}},
		"of somebody who stays": {before: []metav1.ManagedFieldsEntry{fields("kubectl-edit", "Update", "v1",
			`"f:spec":{"f:paused":{}}`)}},
		"that somebody else has": {before: []metav1.ManagedFieldsEntry{helm(`"f:paused":{}`),
			fields("kubectl-edit", "Update", "v1", `"f:spec":{"f:paused":{}}`)}},
		"a field of an item": {
			before: []metav1.ManagedFieldsEntry{helm(`"f:list":{"k:{\"name\":\"a\"}":{".":{},"f:x":{}}}`)},
			want:   "/spec/list/[name=a]/x"},
		"an item": {
			before: []metav1.ManagedFieldsEntry{helm(`"f:list":{"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}`)},
			want:   "/spec/list/[name=b]"},
		"a set with another value": {before: []metav1.ManagedFieldsEntry{helm(`"f:set":{"v:\"x\"":{}}`)},
			want: "/spec/set"},
		"the metadata of an object": {before: []metav1.ManagedFieldsEntry{fields("helm", "Apply", "v1",
			`"f:metadata":{"f:labels":{"f:a":{}}}`)}},
	} {
		object := func(entries ...metav1.ManagedFieldsEntry) *unstructured.Unstructured {
			u := &unstructured.Unstructured{}
			if err := json.Unmarshal([]byte("{"+body+"}"), &u.Object); err != nil {
				t.Fatal(err)
			}
			u.SetManagedFields(entries)
			return u
		}
		before := object(tc.before...)
		after := object(append(tc.before, fields(live.FieldManager, "Apply", "v1", `"f:spec":{`+both+`}`))...)
		if err := removeFormerFields(after, before, &plan.Item{Ignore: tc.ignore}); err != nil {
			t.Fatal(name, err)
		}
		if got := strings.Join(live.Differences(before, after), ", "); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestDifferentError(t *testing.T) {
	many := make([]string, 12)
	for i := range many {
		many[i] = "/x"
	}
	err := &DifferentError{Component: "web", Objects: []DifferentObject{
		{Ref: stacks.Ref{Kind: "Secret", Namespace: "shop", Name: "a"}, Paths: []string{"/data/a", "/data/b"}},
		{Ref: stacks.Ref{Kind: "Secret", Namespace: "shop", Name: "b"}, Paths: many},
		{Ref: stacks.Ref{Kind: "Secret", Namespace: "shop", Name: "c"}, Uncompared: metav1.StatusReasonBadRequest},
	}}
	want := "nothing of it is taken over, because these objects differ from the stack: Secret shop/a /data/a, " +
		"/data/b; " +
		"Secret shop/b " + strings.Repeat("/x, ", 9) + "/x and 2 more fields; " +
		"Secret shop/c (not compared: the API server answers a dry run with BadRequest); " +
		"change them or the stack, or set spec.adopt to Always"
	if got := err.Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
