package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/e2e/bench/report"
	"github.com/ksctl/gitops/e2e/cluster"
)

// scenario is one kind of operation on many installs.
type scenario struct {
	name, title string
	// installs are the default numbers of installs.
	installs []int
	// peers are the peers that run the scenario.
	peers []string
	// layout returns the specs and the source of n installs.
	layout func(o options, n int) ([]installSpec, source)
	// sharesControlPlane is true for a scenario that can begin with or without existing installs,
	// and keeps all installs. Such scenarios with the same number of installs run on one control
	// plane.
	sharesControlPlane bool
	// run performs and measures the scenario.
	run func(ctx context.Context, s *session) error
}

// Sets of peers of a scenario. Argo CD runs only the scenarios for which a comparison is useful.
var (
	everyPeer  = []string{report.Ours, report.Flux, report.ArgoCD, report.Floor}
	ourAndFlux = []string{report.Ours, report.Flux}
	withArgoCD = []string{report.Ours, report.Flux, report.ArgoCD}
	withFloor  = []string{report.Ours, report.Flux, report.Floor}
)

// scenarios are all scenarios, in the order in which they run.
var scenarios = []scenario{
	{name: "a", title: "first install, one namespace each", installs: []int{100, 500, 1000}, peers: everyPeer,
		layout: onePerNamespace, sharesControlPlane: true, run: firstInstall("a")},
	{name: "b", title: "one commit that changes one object of every install", installs: []int{500}, peers: everyPeer,
		layout: onePerNamespace, sharesControlPlane: true, run: onInstalled(changeEach)},
	{name: "c", title: "one commit that changes one object of one install", installs: []int{500}, peers: withFloor,
		layout: onePerNamespace, sharesControlPlane: true, run: onInstalled(changeOne)},
	{name: "d1", title: "idle, all installed", installs: []int{500}, peers: ourAndFlux, layout: onePerNamespace,
		sharesControlPlane: true, run: onInstalled(idle)},
	{name: "d2", title: "forced reconcile of all, no changes", installs: []int{500}, peers: withArgoCD,
		layout: onePerNamespace, sharesControlPlane: true, run: onInstalled(forcedReconcile)},
	{name: "e", title: "manual edit of one object of every install, all at once", installs: []int{200},
		peers: ourAndFlux, layout: onePerNamespace, run: drift},
	{name: "f0", title: "the healthy installs of f alone", installs: []int{200}, peers: ourAndFlux,
		layout: healthyLayout, run: firstInstall("f0")},
	{name: "f", title: "one install in twenty never becomes ready", installs: []int{200}, peers: ourAndFlux,
		layout: partlyUnready, run: installWithUnready},
	{name: "g", title: "one install of many objects", installs: []int{1}, peers: withFloor, layout: largeLayout,
		run: largeInstall},
	{name: "h", title: fmt.Sprintf("a Helm chart with %d templates, one namespace each", templates),
		installs: []int{200}, peers: []string{report.Ours}, layout: helmLayout, run: firstInstall("h")},
	{name: "i", title: "removal of all, every second install depends on the previous one", installs: []int{500},
		peers: withArgoCD, layout: dependencyPairs, run: onInstalled(removal)},
	{name: "j", title: "controller start with all installed, until each install has handled a reconcile request",
		installs: []int{500}, peers: ourAndFlux, layout: onePerNamespace, sharesControlPlane: true,
		run: onInstalled(controllerStart)},
	{name: "k", title: "first install, all in one namespace", installs: []int{100}, peers: withFloor,
		layout: sharedNamespace, run: firstInstall("k")},
	{name: "l", title: "one stack, one namespace each", installs: []int{1000},
		peers: []string{report.Ours, report.Kind}, layout: oneStack, run: installAndChange},
}

// titles returns the titles of scenarios and their steps, by name.
func titles() map[string]string {
	out := map[string]string{"g1": "first install of many objects", "g2": "change of one of many objects",
		"g3": "removal of many objects", "l1": "first install of one stack, one namespace each",
		"l2": "change of one object of every install of that stack"}
	for _, s := range scenarios {
		out[s.name] = s.title
	}
	return out
}

// onePerNamespace is a layout with one namespace per install. The first install has its own folder,
// so that a commit can change it alone.
func onePerNamespace(_ options, n int) ([]installSpec, source) {
	specs := make([]installSpec, n)
	for i := range specs {
		specs[i] = installSpec{Namespace: fmt.Sprintf("site-%04d", i), Name: "app", Folder: "app"}
	}
	specs[0].Folder = "one"
	return specs, source{"app": {name: "app", value: "1"}, "one": {name: "app", value: "1"}}
}

func healthyLayout(o options, n int) ([]installSpec, source) {
	return onePerNamespace(o, n-unreadyCount(n))
}

// unreadyCount returns how many of n installs are never ready.
func unreadyCount(n int) int { return max(n/20, 1) }

func partlyUnready(o options, n int) ([]installSpec, source) {
	specs, src := onePerNamespace(o, n)
	src["sick"] = content{name: "app", value: "1", fate: cluster.FateNeverReady}
	// The unready installs come first, so that they could delay the others.
	for i := range unreadyCount(n) {
		specs[i].Folder = "sick"
	}
	return specs, src
}

func largeLayout(o options, _ int) ([]installSpec, source) {
	return []installSpec{{Namespace: "site-0000", Name: "app", Folder: "app"}},
		source{"app": {value: "1", count: o.objects}}
}

func helmLayout(_ options, n int) ([]installSpec, source) {
	specs, _ := onePerNamespace(options{}, n)
	for i := range specs {
		specs[i].Folder = "app"
	}
	return specs, source{"app": {name: "app", value: "1", chart: true}}
}

// oneStack is a layout with one namespace per install, and the same stack for all.
func oneStack(_ options, n int) ([]installSpec, source) {
	specs, _ := onePerNamespace(options{}, n)
	specs[0].Folder = "app"
	return specs, kindSource
}

func dependencyPairs(o options, n int) ([]installSpec, source) {
	specs, src := onePerNamespace(o, n)
	for i := 1; i < n; i += 2 {
		specs[i].DependsOn = &specs[i-1]
	}
	return specs, src
}

// sharedNamespace is a layout with one namespace. Each install has its own folder with unique
// object names.
func sharedNamespace(_ options, n int) ([]installSpec, source) {
	specs, src := make([]installSpec, n), source{}
	for i := range specs {
		name := fmt.Sprintf("app-%04d", i)
		specs[i] = installSpec{Namespace: "site-0000", Name: name, Folder: name}
		src[name] = content{name: name, value: "1"}
	}
	return specs, src
}

func firstInstall(name string) func(ctx context.Context, s *session) error {
	return func(ctx context.Context, s *session) error {
		return s.measure(ctx, name, func(ctx context.Context) (timestamps, error) {
			return s.install(ctx, time.Hour, s.specs)
		})
	}
}

func installWithUnready(ctx context.Context, s *session) error {
	healthySpecs := slices.DeleteFunc(slices.Clone(s.specs), func(at installSpec) bool { return at.Folder == "sick" })
	return s.measure(ctx, "f", func(ctx context.Context) (timestamps, error) {
		return s.install(ctx, time.Hour, healthySpecs)
	})
}

// ensureInstalled creates all installs without measuring and waits until the peer is idle. It does
// nothing if an earlier scenario has created the installs.
func ensureInstalled(ctx context.Context, s *session, interval time.Duration) error {
	if s.installed {
		return nil
	}
	_, err := s.install(ctx, interval, s.specs)
	time.Sleep(settleTime)
	return err
}

// onInstalled returns a scenario that begins with all installs.
func onInstalled(run func(ctx context.Context, s *session) error) func(ctx context.Context, s *session) error {
	return func(ctx context.Context, s *session) error {
		if err := ensureInstalled(ctx, s, time.Hour); err != nil {
			return err
		}
		return run(ctx, s)
	}
}

func installAndChange(ctx context.Context, s *session) error {
	if err := firstInstall("l1")(ctx, s); err != nil {
		return err
	}
	return s.measure(ctx, "l2", func(ctx context.Context) (timestamps, error) {
		return s.change(ctx, s.source.withValue(s.nextValue()))
	})
}

func changeEach(ctx context.Context, s *session) error {
	return s.measure(ctx, "b", func(ctx context.Context) (timestamps, error) {
		return s.change(ctx, s.source.withValue(s.nextValue()))
	})
}

// changeOne measures the latency of the changed install. The wall time ends when the other installs
// also report the new revision.
func changeOne(ctx context.Context, s *session) error {
	return s.measure(ctx, "c", func(ctx context.Context) (timestamps, error) {
		all, err := s.change(ctx, s.source.withValue(s.nextValue(), "one"))
		one := objectKeys(s.peer, s.specs[:1])[0]
		return timestamps{one: all[one]}, err
	})
}

func idle(ctx context.Context, s *session) error {
	return s.measure(ctx, "d1", func(ctx context.Context) (timestamps, error) {
		select {
		case <-time.After(s.options.idle):
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
}

func forcedReconcile(ctx context.Context, s *session) error {
	return s.measure(ctx, "d2", func(ctx context.Context) (timestamps, error) {
		w, err := s.request(ctx)
		if err != nil {
			return nil, err
		}
		return s.installWatch.await(ctx, w)
	})
}

func largeInstall(ctx context.Context, s *session) error {
	if err := firstInstall("g1")(ctx, s); err != nil {
		return err
	}
	err := s.measure(ctx, "g2", func(ctx context.Context) (timestamps, error) {
		return s.change(ctx, s.source.withValue(s.nextValue()))
	})
	if err != nil {
		return err
	}
	return s.measure(ctx, "g3", s.removeAll)
}

func removal(ctx context.Context, s *session) error {
	var deletedAt timestamps
	err := s.measure(ctx, "i", func(ctx context.Context) (timestamps, error) {
		var err error
		deletedAt, err = s.removeAll(ctx)
		return deletedAt, err
	})
	if err != nil || s.peerName == report.ArgoCD { // Applications have no dependencies
		return err
	}
	ordered := removedInOrder(s.specs, deletedAt)
	s.results[len(s.results)-1].Ordered = &ordered
	return nil
}

// removedInOrder returns true if no install was removed before an install that depends on it.
func removedInOrder(specs []installSpec, deletedAt timestamps) bool {
	for _, s := range specs {
		if s.DependsOn == nil {
			continue
		}
		base := deletedAt[types.NamespacedName{Namespace: s.DependsOn.Namespace, Name: s.DependsOn.Name}]
		if base.Before(deletedAt[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]) {
			return false
		}
	}
	return true
}

func controllerStart(ctx context.Context, s *session) error {
	if err := s.peer.stop(); err != nil {
		return err
	}
	w, err := s.request(ctx)
	if err != nil {
		return err
	}
	return s.measure(ctx, "j", func(ctx context.Context) (timestamps, error) {
		if err := s.peer.start(ctx); err != nil {
			return nil, err
		}
		return s.installWatch.await(ctx, w)
	})
}
