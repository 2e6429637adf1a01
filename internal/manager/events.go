package manager

import (
	"context"
	"fmt"
	"net/http"
	"time"

	fluxevents "github.com/fluxcd/pkg/runtime/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ksctl/gitops/controllers/setup"
	"github.com/ksctl/gitops/internal/telemetry/events"
)

const (
	// eventRetryWait is the longest pause before an event is sent again. With the
	// client's bound of 5 s for an attempt it is what the end may have to wait for.
	eventRetryWait = 5 * time.Second
)

// addEvents makes the recorder of events: to the API server, and to the receiver
// that --events-addr names. Neither waits for the other.
func (p *process) addEvents(ctx context.Context) error {
	recorder, err := fluxevents.NewRecorder(p.mgr, ctrl.Log, "", setup.FieldOwner)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	kubernetes, err := p.queue("kubernetes", recorder)
	if err != nil {
		return err
	}
	tell := events.Tee{kubernetes}
	if p.opts.EventsAddr != "" {
		// The first of the two tells the API server: this one tells nobody else.
		receiver, err := fluxevents.NewRecorderForScheme(p.mgr.GetScheme(), &record.FakeRecorder{}, ctrl.Log, p.opts.EventsAddr, setup.FieldOwner)
		if err != nil {
			return fmt.Errorf("--events-addr: %w", err)
		}
		receiver.Client.RetryWaitMax = eventRetryWait
		again := receiver.Client.CheckRetry
		receiver.Client.CheckRetry = func(request context.Context, resp *http.Response, err error) (bool, error) {
			if ctx.Err() != nil {
				return false, err
			}
			return again(request, resp, err)
		}
		q, err := p.queue("receiver", receiver)
		if err != nil {
			return err
		}
		tell = append(tell, q)
	}
	p.events = tell
	return nil
}

// queue stands between what happens and a recorder.
func (p *process) queue(to string, r record.EventRecorder) (*events.Queue, error) {
	q := &events.Queue{To: r, Scheme: p.mgr.GetScheme(), Clock: clock.RealClock{}, Linger: setup.EventsLinger,
		Dropped: func() { p.metrics.EventDropped(to) }, Held: func(n int) { p.metrics.EventsWaiting(to, n) }}
	return q, p.mgr.Add(q)
}
