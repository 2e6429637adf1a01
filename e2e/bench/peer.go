package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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
	// resource is the kind of its installs.
	resource() schema.GroupVersionResource
	// wish is the object that asks for an install.
	wish(s site, interval time.Duration) client.Object
	// publish puts a source where installs have it from, and returns the revision that
	// they call it by. readyAt is the revision that one is ready at, for the spec that
	// it has, and empty while it is not ready.
	publish(ctx context.Context, src source) (revision string, err error)
	readyAt(install *unstructured.Unstructured) string
	// ask is what asks an install to reconcile now, and what is met by those that have.
	ask() (client.Patch, check)
	// create is called with sites whose wishes have just been made, commit when
	// the source has moved on from what it was, remove when the wishes were
	// deleted. Those who watch do nothing.
	created(ctx context.Context, sites []site) error
	committed(ctx context.Context, sites []site, from source) error
	removed(ctx context.Context, sites []site) error
	// processes of its own, if there are any.
	processes() []*harness.Process
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
	case report.ArgoCD:
		return &argoCD{}, nil
	case report.Floor:
		return &floor{}, nil
	}
	return nil, fmt.Errorf("no peer is called %q; there are %s, %s, %s and %s", name, report.Ours, report.Flux, report.ArgoCD, report.Floor)
}

// watcher is a peer that is a process, or several, and hears of everything by itself.
type watcher struct {
	running atomic.Pointer[[]*harness.Process]
}

func (*watcher) created(context.Context, []site) error           { return nil }
func (*watcher) committed(context.Context, []site, source) error { return nil }
func (*watcher) removed(context.Context, []site) error           { return nil }

func (w *watcher) processes() []*harness.Process {
	if all := w.running.Load(); all != nil {
		return *all
	}
	return nil
}

// run keeps one more process that was started, and waits until it is of use.
func (w *watcher) run(ctx context.Context, p *harness.Process, err error) error {
	if err != nil {
		return err
	}
	all := append(slices.Clone(w.processes()), p)
	w.running.Store(&all)
	return p.Healthy(ctx)
}

// stop ends the processes, those that were started last first.
func (w *watcher) stop() error {
	var errs []error
	for _, p := range slices.Backward(w.processes()) {
		if err := p.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("%w; its log:\n%s", err, p.Log()))
		}
	}
	w.running.Store(nil)
	return errors.Join(errs...)
}

// toolkit is a peer whose source is the artifact of the world's GitRepository, and whose
// installs have the status that those of Flux have.
type toolkit struct{ world *world }

func (t *toolkit) publish(ctx context.Context, src source) (string, error) {
	return t.world.publish(ctx, src)
}

func (*toolkit) readyAt(install *unstructured.Unstructured) string {
	status, _ := condition(install, "Ready")
	observed, _, _ := unstructured.NestedInt64(install.Object, "status", "observedGeneration")
	if status != "True" || observed != install.GetGeneration() {
		return ""
	}
	applied, _, _ := unstructured.NestedString(install.Object, "status", "lastAppliedRevision")
	return applied
}

func (*toolkit) ask() (client.Patch, check) {
	token := strconv.FormatInt(time.Now().UnixNano(), 10)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, token)
	return client.RawPatch(types.MergePatchType, body), answered(token)
}

var installs = appsv1.GroupVersion.WithResource("ksctlinstalls")
