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

// peer is one of the compared installers. It installs from the source of a testbed.
type peer interface {
	// prepare is called once, before any measurement.
	prepare(ctx context.Context, w *testbed) error
	// start starts the peer and returns when it is ready. stop stops it.
	start(ctx context.Context) error
	stop() error
	// user returns the user name of the peer's requests in the audit log.
	user() string
	// resource returns the resource of the peer's installs.
	resource() schema.GroupVersionResource
	// installObject returns the object by which a user requests an install.
	installObject(s installSpec, interval time.Duration) client.Object
	// publish publishes a source for the installs, and returns the revision that they report for
	// it.
	publish(ctx context.Context, src source) (revision string, err error)
	// readyRevision returns the revision at which an install is ready, or "" if it is not ready for
	// its current spec.
	readyRevision(install *unstructured.Unstructured) string
	// reconcileRequest returns a patch that requests an immediate reconcile of an install, and a
	// predicate for installs that have handled the request.
	reconcileRequest() (client.Patch, objectPredicate)
	// onCreated is called after the benchmark has created the installs, onCommitted after it has
	// published a new source (from is the previous one), and onRemoved after it has deleted the
	// installs. Peers that watch the API server do nothing.
	onCreated(ctx context.Context, installs []installSpec) error
	onCommitted(ctx context.Context, installs []installSpec, from source) error
	onRemoved(ctx context.Context, installs []installSpec) error
	// processes returns the peer's processes; the floor has none.
	processes() []*harness.Process
	// pprofAddress returns the address of the peer's profiles, "" if it serves none.
	pprofAddress() string
}

// newPeer returns a peer by name.
func newPeer(name string, o options) (peer, error) {
	switch name {
	case report.Ours:
		return &ours{options: o}, nil
	case report.Kind:
		return &publishedKind{ours: ours{options: o}}, nil
	case report.Flux:
		return &flux{options: o}, nil
	case report.ArgoCD:
		return &argoCD{}, nil
	case report.Floor:
		return &floor{}, nil
	}
	return nil, fmt.Errorf("unknown peer %q; known peers: %s, %s, %s, %s, %s", name, report.Ours, report.Kind,
		report.Flux, report.ArgoCD, report.Floor)
}

// processPeer is a base type for peers that run as processes and watch the API server.
type processPeer struct {
	running atomic.Pointer[[]*harness.Process]
}

func (*processPeer) onCreated(context.Context, []installSpec) error           { return nil }
func (*processPeer) onCommitted(context.Context, []installSpec, source) error { return nil }
func (*processPeer) onRemoved(context.Context, []installSpec) error           { return nil }

func (w *processPeer) processes() []*harness.Process {
	if all := w.running.Load(); all != nil {
		return *all
	}
	return nil
}

// run adds a started process and waits until it is healthy.
func (w *processPeer) run(ctx context.Context, p *harness.Process, err error) error {
	if err != nil {
		return err
	}
	all := append(slices.Clone(w.processes()), p)
	w.running.Store(&all)
	return p.WaitHealthy(ctx)
}

// stop stops the processes in reverse order of their start.
func (w *processPeer) stop() error {
	var errs []error
	for _, p := range slices.Backward(w.processes()) {
		if err := p.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("%w; its log:\n%s", err, p.Log()))
		}
	}
	w.running.Store(nil)
	return errors.Join(errs...)
}

// toolkitPeer is a base type for peers whose source is the artifact of the testbed's GitRepository,
// and whose installs have a status like Flux' (GitOps Toolkit).
type toolkitPeer struct{ testbed *testbed }

func (t *toolkitPeer) publish(ctx context.Context, src source) (string, error) {
	return t.testbed.publish(ctx, src)
}

func (*toolkitPeer) readyRevision(install *unstructured.Unstructured) string {
	status, _ := condition(install, "Ready")
	observed, _, _ := unstructured.NestedInt64(install.Object, "status", "observedGeneration")
	if status != "True" || observed != install.GetGeneration() {
		return ""
	}
	applied, _, _ := unstructured.NestedString(install.Object, "status", "lastAppliedRevision")
	return applied
}

func (*toolkitPeer) reconcileRequest() (client.Patch, objectPredicate) {
	token := strconv.FormatInt(time.Now().UnixNano(), 10)
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, token)
	return client.RawPatch(types.MergePatchType, body), reconcileHandled(token)
}

// ksctlPeer is a base type for peers whose installs are KsctlInstalls.
type ksctlPeer struct{ toolkitPeer }

func (*ksctlPeer) resource() schema.GroupVersionResource {
	return appsv1.GroupVersion.WithResource("ksctlinstalls")
}

func (*ksctlPeer) installObject(s installSpec, interval time.Duration) client.Object {
	return install(s, interval)
}
