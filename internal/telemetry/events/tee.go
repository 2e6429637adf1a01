package events

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// Tee is an event recorder that forwards each event to several recorders.
type Tee []record.EventRecorder

// Event implements record.EventRecorder.
func (t Tee) Event(object runtime.Object, kind, reason, message string) {
	t.AnnotatedEventf(object, nil, kind, reason, "%s", message)
}

// Eventf implements record.EventRecorder.
func (t Tee) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	t.AnnotatedEventf(object, nil, kind, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (t Tee) AnnotatedEventf(object runtime.Object, annotations map[string]string, kind, reason, format string,
	args ...any) {
	for _, r := range t {
		r.AnnotatedEventf(object, annotations, kind, reason, format, args...)
	}
}
