package manager

import (
	"context"
	"fmt"
	"net/http"
	"time"

	fluxevents "github.com/fluxcd/pkg/runtime/events"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ksctl/gitops/controllers/setup"
	"github.com/ksctl/gitops/internal/telemetry/events"
)

// eventRetryWait is the longest pause before an event is sent again. Shutdown waits for at most
// this pause and one attempt, which the client limits to 5 s.
const eventRetryWait = 5 * time.Second

// addEventRecorder sets up p.events, which sends events to the API server and to the receiver at
// --events-addr. Each has its own queue, so that neither delays the other.
func (p *process) addEventRecorder(ctx context.Context) error {
	recorder, err := fluxevents.NewRecorder(p.mgr, ctrl.Log, "", setup.FieldOwner)
	if err != nil {
		return fmt.Errorf("creating the event recorder: %w", err)
	}
	kubernetes, err := p.addEventQueue("kubernetes", recorder)
	if err != nil {
		return err
	}
	recorders := events.Tee{kubernetes}
	if p.opts.EventsAddr != "" {
		// The first recorder sends events to the API server. This one sends them to the receiver
		// alone, so its Kubernetes recorder is a fake.
		receiver, err := fluxevents.NewRecorderForScheme(p.mgr.GetScheme(), &record.FakeRecorder{}, ctrl.Log,
			p.opts.EventsAddr, setup.FieldOwner)
		if err != nil {
			return fmt.Errorf("--events-addr: %w", err)
		}
		receiver.Client.RetryWaitMax = eventRetryWait
		checkRetry := receiver.Client.CheckRetry
		receiver.Client.CheckRetry = func(request context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil {
				return false, err
			}
			return checkRetry(request, resp, err)
		}
		q, err := p.addEventQueue("receiver", receiver)
		if err != nil {
			return err
		}
		recorders = append(recorders, q)
	}
	p.events = recorders
	return nil
}

// addEventQueue adds a queue to the manager that passes events on to r, so that reconcilers do not
// wait for r. sink is the value of the metrics' label.
func (p *process) addEventQueue(sink string, r record.EventRecorder) (*events.Queue, error) {
	q := &events.Queue{Recorder: r, Scheme: p.mgr.GetScheme(), DrainTimeout: setup.EventsDrainTimeout,
		OnDrop: func() { p.metrics.EventDropped(sink) }, OnLength: func(n int) { p.metrics.EventsWaiting(sink, n) }}
	return q, p.mgr.Add(q)
}
