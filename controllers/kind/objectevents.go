package kind

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"
)

// objectEvents records events of the objects of a served kind. The scheme of the recorder does not
// have their kind.
type objectEvents struct {
	recorder record.EventRecorder
	gvk      schema.GroupVersionKind
}

var _ record.EventRecorder = objectEvents{}

func (e objectEvents) withKind(o runtime.Object) runtime.Object {
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(e.gvk)
	return o
}

// Event implements record.EventRecorder.
func (e objectEvents) Event(o runtime.Object, kind, reason, message string) {
	e.recorder.Event(e.withKind(o), kind, reason, message)
}

// Eventf implements record.EventRecorder.
func (e objectEvents) Eventf(o runtime.Object, kind, reason, format string, args ...any) {
	e.recorder.Eventf(e.withKind(o), kind, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (e objectEvents) AnnotatedEventf(o runtime.Object, annotations map[string]string, kind, reason, format string,
	args ...any) {
	e.recorder.AnnotatedEventf(e.withKind(o), annotations, kind, reason, format, args...)
}
