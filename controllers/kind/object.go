package kind

import (
	"encoding/json"
	"maps"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Object is an object of a served kind.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is as the user wrote it, with defaults.
	Spec   map[string]any `json:"spec,omitempty"`
	Status ObjectStatus   `json:"status,omitempty"`

	// schedule is that of the install. It is zero until the install is known.
	schedule appsv1.Schedule
}

// ObjectStatus is the status of an install, and the fields that the stack sets.
type ObjectStatus struct {
	appsv1.KsctlInstallStatus
	Fields map[string]any
}

// onlyFieldsChanged reports whether only what the stack sets in the status has changed. It follows
// the objects of the install, which may change often.
func onlyFieldsChanged(before, after *Object) bool {
	return apiequality.Semantic.DeepEqual(before.Status.KsctlInstallStatus, after.Status.KsctlInstallStatus) &&
		!apiequality.Semantic.DeepEqual(before.Status.Fields, after.Status.Fields)
}

// MarshalJSON encodes all fields side by side.
func (s ObjectStatus) MarshalJSON() ([]byte, error) {
	raw, err := json.Marshal(s.KsctlInstallStatus)
	if err != nil || len(s.Fields) == 0 {
		return raw, err
	}
	all := map[string]any{}
	for name, value := range s.Fields {
		all[name] = value
	}
	var own map[string]json.RawMessage
	if err := json.Unmarshal(raw, &own); err != nil {
		return nil, err
	}
	for name, value := range own {
		all[name] = value
	}
	return json.Marshal(all)
}

// installStatusFields are the names of the fields of the status of an install.
var installStatusFields = func() map[string]bool {
	out := map[string]bool{}
	for _, name := range fieldNames(appsv1.KsctlInstallStatus{}) {
		out[name] = true
	}
	return out
}()

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *ObjectStatus) UnmarshalJSON(data []byte) error {
	*s = ObjectStatus{}
	if err := json.Unmarshal(data, &s.KsctlInstallStatus); err != nil {
		return err
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return installStatusFields[name] })
	if len(all) > 0 {
		s.Fields = all
	}
	return nil
}

// CommonStatus implements reconcile.Object.
func (o *Object) CommonStatus() *appsv1.CommonStatus { return &o.Status.CommonStatus }

// Schedule implements reconcile.Object.
func (o *Object) Schedule() *appsv1.Schedule { return &o.schedule }

// DeepCopyObject implements runtime.Object.
func (o *Object) DeepCopyObject() runtime.Object {
	out := &Object{TypeMeta: o.TypeMeta}
	o.DeepCopyInto(&out.ObjectMeta)
	out.Spec = runtime.DeepCopyJSON(o.Spec)
	o.Status.DeepCopyInto(&out.Status.KsctlInstallStatus)
	out.Status.Fields = runtime.DeepCopyJSON(o.Status.Fields)
	o.schedule.DeepCopyInto(&out.schedule)
	return out
}

// ObjectList is a list of objects of a served kind.
type ObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Object `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *ObjectList) DeepCopyObject() runtime.Object {
	out := &ObjectList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Object, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Object)
	}
	return out
}

// value returns the object as JSON values, for the expressions of the stack.
func (o *Object) value(apiVersion, kind string) map[string]any {
	texts := func(m map[string]string) map[string]any {
		out := map[string]any{}
		for name, value := range m {
			out[name] = value
		}
		return out
	}
	return map[string]any{"apiVersion": apiVersion, "kind": kind, "spec": o.Spec, "metadata": map[string]any{
		"name": o.Name, "namespace": o.Namespace, "labels": texts(o.Labels), "annotations": texts(o.Annotations)}}
}
