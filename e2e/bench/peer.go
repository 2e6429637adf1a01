package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/bench/report"
	"github.com/ksctl/gitops/e2e/harness"
)

// peer installs what a world's source holds.
type peer interface {
	// prepare is called once, before anything is measured.
	prepare(ctx context.Context, w *world) error
	// start runs it; it returns when it is at work. stop ends it.
	start(ctx context.Context) error
	stop() error
	// user is as whom it makes its requests.
	user() string
	// resource is the kind of its installs, which have a Ready condition.
	resource() schema.GroupVersionResource
	// wish is the object that asks for an install.
	wish(s site, interval time.Duration) client.Object
	// create is called with sites whose wishes have just been made, commit when
	// the source has moved on from what it was, remove when the wishes were
	// deleted. Those who watch do nothing.
	created(ctx context.Context, sites []site) error
	committed(ctx context.Context, sites []site, from source) error
	removed(ctx context.Context, sites []site) error
	// process of its own; nil if there is none.
	process() *harness.Process
	// profiles is the address of its profiles, "" if it serves none.
	profiles() string
}

// newPeer returns a peer by name.
func newPeer(name string, o options) (peer, error) {
	switch name {
	case report.Ours:
		return &ours{options: o}, nil
	case report.Flux:
		return &flux{options: o}, nil
	case report.Floor:
		return &floor{}, nil
	}
	return nil, fmt.Errorf("no peer is called %q; there are %s, %s and %s", name, report.Ours, report.Flux, report.Floor)
}

// watcher is a peer that is a process and hears of everything by itself.
type watcher struct {
	world *world
	proc  atomic.Pointer[harness.Process]
}

func (*watcher) created(context.Context, []site) error           { return nil }
func (*watcher) committed(context.Context, []site, source) error { return nil }
func (*watcher) removed(context.Context, []site) error           { return nil }

func (w *watcher) process() *harness.Process { return w.proc.Load() }

// run keeps a process that was started, and waits until it is of use.
func (w *watcher) run(ctx context.Context, p *harness.Process, err error) error {
	if err != nil {
		return err
	}
	w.proc.Store(p)
	return p.Healthy(ctx)
}

func (w *watcher) stop() error {
	p := w.proc.Swap(nil)
	if p == nil {
		return nil
	}
	if err := p.Stop(); err != nil {
		return fmt.Errorf("%w; its log:\n%s", err, p.Log())
	}
	return nil
}

var installs = appsv1.GroupVersion.WithResource("ksctlinstalls")
