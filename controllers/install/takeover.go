package install

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// reportDifferent emits events with the existing objects of a component that change when they are
// taken over.
func (o *owner) reportDifferent(e *engine.DifferentError) {
	for _, message := range differentMessages(e) {
		o.req.Event(corev1.EventTypeWarning, appsv1.ObjectsDifferReason, message)
	}
}

// There are at most maxDifferentEvents events. The message of an event has at most 1024 bytes.
const (
	maxDifferentMessage = 850
	maxDifferentEvents  = 10
)

// differentMessages returns the messages that list the objects. Further objects are counted.
func differentMessages(e *engine.DifferentError) (out []string) {
	prefix := fmt.Sprintf("component %q: existing objects change when they are taken over: ", e.Component)
	for i := range e.Objects {
		object := reconcile.Truncate(e.Objects[i].String(), maxDifferentMessage)
		last := len(out) - 1
		switch {
		case last >= 0 && len(out[last])+len(object) <= maxDifferentMessage:
			out[last] += "; " + object
		case len(out) == maxDifferentEvents:
			out[last] += fmt.Sprintf("; and %d more objects", len(e.Objects)-i)
			return out
		default:
			out = append(out, prefix+object)
		}
	}
	return out
}
