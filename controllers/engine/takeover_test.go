package engine

import (
	"encoding/json"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		"that another client sets": {before: []metav1.ManagedFieldsEntry{helm(`"f:paused":{}`),
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
	secret := func(name string) stacks.Ref { return stacks.Ref{Kind: "Secret", Namespace: "shop", Name: name} }
	objects := []DifferentObject{{Ref: secret("a"), Paths: []string{"/data/a", "/data/b"}},
		{Ref: secret("b"), Paths: many}, {Ref: secret("c"), Uncompared: metav1.StatusReasonBadRequest}}
	const hint = "no object is taken over while these differ from the stack (change them or the stack, or set " +
		"spec.adopt to Always): "
	want := hint + "Secret shop/a /data/a, /data/b; Secret shop/b " + strings.Repeat("/x, ", 9) +
		"/x and 2 more fields; " +
		"Secret shop/c (not compared: the dry run fails with BadRequest)"
	if got := newDifferentError("web", objects).Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for len(objects) < 1000 {
		objects = append(objects, objects[0])
	}
	if got := newDifferentError("web", objects).Error(); !strings.HasSuffix(got, "; and 990 more objects") {
		t.Errorf("got %s", got)
	}
}

func TestRefusedFields(t *testing.T) {
	status := func(causes ...metav1.StatusCause) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Reason: metav1.StatusReasonInvalid,
			Details: &metav1.StatusDetails{Causes: causes}}}
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"no error":      {},
		"no details":    {err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 422, Message: "denied"}}},
		"another error": {err: apierrors.NewBadRequest("no dry runs")},
		"no field":      {err: status(metav1.StatusCause{Message: "denied"}, metav1.StatusCause{Field: "<nil>"})},
		"fields": {err: status(metav1.StatusCause{Field: "spec.template.spec.containers[0].image"},
			metav1.StatusCause{Field: "data[tls.crt]"}, metav1.StatusCause{Field: "spec.selector"},
			metav1.StatusCause{Field: "data[tls.crt]"}),
			want: "/data/tls.crt, /spec/selector, /spec/template/spec/containers/0/image"},
	} {
		if got := strings.Join(refusedFields(tc.err), ", "); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
