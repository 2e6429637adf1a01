package live

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managed returns an object with managedFields: manager, operation, subresource and fields.
func managed(entries ...[4]string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "uid"}}
	for _, e := range entries {
		o.ManagedFields = append(o.ManagedFields, metav1.ManagedFieldsEntry{Manager: e[0],
			Operation: metav1.ManagedFieldsOperationType(e[1]), Subresource: e[2], APIVersion: "v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(e[3])})
	}
	return o
}

func TestContributedFields(t *testing.T) {
	const item = `{"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{},"f:port":{}}}}}`
	o := managed([4]string{"ksctl-gitops", "Apply", "", `{"f:data":{"f:z":{}}}`},
		[4]string{"ksctl-gitops-1", "Apply", "", item},
		[4]string{"ksctl-gitops-2", "Update", "", `{"f:data":{"f:a":{}}}`},
		[4]string{"ksctl-gitops-3", "Apply", "status", `{"f:data":{"f:a":{}}}`})
	fields := ContributedFields(o, "ksctl-gitops-1")
	for path, want := range map[string]bool{
		`.spec.ports[port=80]`: true, `.spec.ports[port=80].name`: true, `.spec.ports[port=80].port`: true,
		`.spec.ports[port=81]`: false, `.spec.ports`: false, `.data.z`: false, ``: false,
	} {
		if HasField(fields, path) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
	if len(fields) != 3*fieldHashLen {
		t.Errorf("fields %q", fields)
	}
	for _, manager := range []string{"ksctl-gitops", "ksctl-gitops-2", "ksctl-gitops-3", "ksctl-gitops-4", ""} {
		if got := ContributedFields(o, manager); got != "" {
			t.Errorf("%s has the fields %q", manager, got)
		}
	}
}

func TestContributedObjectChangesWithTheManagersOfItsFields(t *testing.T) {
	theirs := [4]string{"kubectl", "Update", "", `{"f:data":{"f:a":{}}}`}
	status := [4]string{"controller", "Update", "status", `{"f:status":{"f:b":{}}}`}
	before := ProjectContributions(managed(theirs))
	for name, tc := range map[string]struct {
		object *metav1.PartialObjectMetadata
		change func(*metav1.PartialObjectMetadata)
		same   bool
	}{
		"another version": {object: managed(theirs),
			change: func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "7" }, same: true},
		"a write of the status": {object: managed(theirs, status), same: true},
		"a field of another":    {object: managed(theirs, [4]string{"b", "Apply", "", `{"f:data":{"f:b":{}}}`})},
		"no fields":             {object: managed()},
		"a manager was renamed": {object: managed([4]string{"edit", "Update", "", `{"f:data":{"f:a":{}}}`})},
		"another object": {object: managed(theirs),
			change: func(o *metav1.PartialObjectMetadata) { o.UID = "b" }},
		"the deletion has begun": {object: managed(theirs), change: func(o *metav1.PartialObjectMetadata) {
			o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change != nil {
				tc.change(tc.object)
			}
			if same := ProjectContributions(tc.object) == before; same != tc.same {
				t.Errorf("same: %t", same)
			}
		})
	}
}
