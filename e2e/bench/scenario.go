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

// scenario is something that happens to many installs.
type scenario struct {
	name, title string
	// installs that it has when nobody says how many.
	installs []int
	// peers that do it; nil for all.
	peers []string
	// sites and the source for so many installs.
	layout func(o options, n int) ([]site, source)
	// shares is true when it begins with everything in place, or from nothing, and
	// leaves everything in place: as many installs then share a control plane.
	shares bool
	// run makes it happen and measures it.
	run func(ctx context.Context, s *session) error
}

// Who can do a scenario. Argo CD has no part in those that nobody wants it compared in.
var (
	controllers = []string{report.Ours, report.Flux}
	withArgoCD  = []string{report.Ours, report.Flux, report.ArgoCD}
	withFloor   = []string{report.Ours, report.Flux, report.Floor}
)

// scenarios is every one, in the order in which they run.
var scenarios = []scenario{
	{name: "a", title: "from nothing to all Ready, a namespace each", installs: []int{100, 500, 1000}, layout: spread, shares: true, run: fromNothing("a")},
	{name: "b", title: "one commit that changes one object of each", installs: []int{500}, layout: spread, shares: true, run: changeEach},
	{name: "c", title: "one commit that changes one object of one", installs: []int{500}, peers: withFloor, layout: spread, shares: true, run: changeOne},
	{name: "d1", title: "idle with everything in place", installs: []int{500}, peers: controllers, layout: spread, shares: true, run: idle},
	{name: "d2", title: "a forced reconcile of all, nothing new", installs: []int{500}, peers: withArgoCD, layout: spread, shares: true, run: requested},
	{name: "e", title: "objects edited by hand, all at once", installs: []int{200}, peers: controllers, layout: spread, run: drift},
	{name: "f0", title: "the healthy ones of f without those that are never ready", installs: []int{200}, peers: controllers, layout: healthy, run: fromNothing("f0")},
	{name: "f", title: "one in twenty is never ready", installs: []int{200}, peers: controllers, layout: partlySick, run: someNeverReady},
	{name: "g", title: "one install of many objects", installs: []int{1}, peers: withFloor, layout: large, run: largeInstall},
	{name: "h", title: fmt.Sprintf("a Helm chart of %d templates, a namespace each", templates), installs: []int{200}, peers: []string{report.Ours}, layout: helm, run: fromNothing("h")},
	{name: "i", title: "removal of everything, every other install depends on the one before", installs: []int{500}, peers: withArgoCD, layout: pairs, run: removal},
	{name: "j", title: "start of the controller with everything in place, until each install has answered", installs: []int{500}, peers: controllers, layout: spread, shares: true, run: start},
	{name: "k", title: "from nothing to all Ready, all in one namespace", installs: []int{100}, peers: withFloor, layout: together, run: fromNothing("k")},
}

// titles of what is measured, by name.
func titles() map[string]string {
	out := map[string]string{"g1": "one install of many objects, first apply", "g2": "one change among them", "g3": "its removal"}
	for _, s := range scenarios {
		out[s.name] = s.title
	}
	return out
}

// spread is a namespace for each install. The first has a folder of its own, so
// that a commit can change it alone.
func spread(_ options, n int) ([]site, source) {
	sites := make([]site, n)
	for i := range sites {
		sites[i] = site{Namespace: fmt.Sprintf("site-%04d", i), Name: "app", Folder: "app"}
	}
	sites[0].Folder = "one"
	return sites, source{"app": {name: "app", value: "1"}, "one": {name: "app", value: "1"}}
}

func healthy(o options, n int) ([]site, source) { return spread(o, n-sick(n)) }

// sick is how many of so many installs are never ready.
func sick(n int) int { return max(n/20, 1) }

func partlySick(o options, n int) ([]site, source) {
	sites, src := spread(o, n)
	src["sick"] = content{name: "app", value: "1", fate: cluster.FateNeverReady}
	// First come the sick, so that the others have to get past them.
	for i := range sick(n) {
		sites[i].Folder = "sick"
	}
	return sites, src
}

func large(o options, _ int) ([]site, source) {
	return []site{{Namespace: "site-0000", Name: "app", Folder: "app"}}, source{"app": {value: "1", count: o.objects}}
}

func helm(_ options, n int) ([]site, source) {
	sites, _ := spread(options{}, n)
	for i := range sites {
		sites[i].Folder = "app"
	}
	return sites, source{"app": {name: "app", value: "1", chart: true}}
}

func pairs(o options, n int) ([]site, source) {
	sites, src := spread(o, n)
	for i := 1; i < n; i += 2 {
		sites[i].DependsOn = &sites[i-1]
	}
	return sites, src
}

// together is one namespace, and so a folder with names of its own for each.
func together(_ options, n int) ([]site, source) {
	sites, src := make([]site, n), source{}
	for i := range sites {
		name := fmt.Sprintf("app-%04d", i)
		sites[i] = site{Namespace: "site-0000", Name: name, Folder: name}
		src[name] = content{name: name, value: "1"}
	}
	return sites, src
}

func fromNothing(name string) func(ctx context.Context, s *session) error {
	return func(ctx context.Context, s *session) error {
		return s.measure(ctx, name, func(ctx context.Context) (moments, error) { return s.install(ctx, time.Hour, s.sites) })
	}
}

func someNeverReady(ctx context.Context, s *session) error {
	well := slices.DeleteFunc(slices.Clone(s.sites), func(at site) bool { return at.Folder == "sick" })
	return s.measure(ctx, "f", func(ctx context.Context) (moments, error) { return s.install(ctx, time.Hour, well) })
}

// inPlace installs everything without measuring it, and lets it come to rest,
// unless it is there from what was measured before.
func inPlace(ctx context.Context, s *session, interval time.Duration) error {
	if s.placed {
		return nil
	}
	_, err := s.install(ctx, interval, s.sites)
	time.Sleep(settle)
	return err
}

func changeEach(ctx context.Context, s *session) error {
	if err := inPlace(ctx, s, time.Hour); err != nil {
		return err
	}
	return s.measure(ctx, "b", func(ctx context.Context) (moments, error) { return s.change(ctx, s.source.changed(s.next())) })
}

// changeOne is about the one that changes; the time of all is that until the
// others have said that they are at the new revision too.
func changeOne(ctx context.Context, s *session) error {
	if err := inPlace(ctx, s, time.Hour); err != nil {
		return err
	}
	return s.measure(ctx, "c", func(ctx context.Context) (moments, error) {
		all, err := s.change(ctx, s.source.changed(s.next(), "one"))
		one := keys(s.peer, s.sites[:1])[0]
		return moments{one: all[one]}, err
	})
}

func idle(ctx context.Context, s *session) error {
	if err := inPlace(ctx, s, time.Hour); err != nil {
		return err
	}
	return s.measure(ctx, "d1", func(ctx context.Context) (moments, error) {
		select {
		case <-time.After(s.options.idle):
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	})
}

func requested(ctx context.Context, s *session) error {
	if err := inPlace(ctx, s, time.Hour); err != nil {
		return err
	}
	return s.measure(ctx, "d2", func(ctx context.Context) (moments, error) {
		w, err := s.request(ctx)
		if err != nil {
			return nil, err
		}
		return s.board.await(ctx, w)
	})
}

func largeInstall(ctx context.Context, s *session) error {
	if err := fromNothing("g1")(ctx, s); err != nil {
		return err
	}
	err := s.measure(ctx, "g2", func(ctx context.Context) (moments, error) { return s.change(ctx, s.source.changed(s.next())) })
	if err != nil {
		return err
	}
	return s.measure(ctx, "g3", func(ctx context.Context) (moments, error) { return s.removeAll(ctx) })
}

func removal(ctx context.Context, s *session) error {
	if err := inPlace(ctx, s, time.Hour); err != nil {
		return err
	}
	var went moments
	err := s.measure(ctx, "i", func(ctx context.Context) (moments, error) {
		var err error
		went, err = s.removeAll(ctx)
		return went, err
	})
	if err != nil || s.peerName == report.ArgoCD { // no Application depends on another
		return err
	}
	kept := inOrder(s.sites, went)
	s.results[len(s.results)-1].Ordered = &kept
	return nil
}

// inOrder is true when no site went before one that depends on it.
func inOrder(sites []site, went moments) bool {
	for _, s := range sites {
		if s.DependsOn == nil {
			continue
		}
		base := went[types.NamespacedName{Namespace: s.DependsOn.Namespace, Name: s.DependsOn.Name}]
		if base.Before(went[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}]) {
			return false
		}
	}
	return true
}

func start(ctx context.Context, s *session) error {
	if err := inPlace(ctx, s, time.Hour); err != nil {
		return err
	}
	if err := s.peer.stop(); err != nil {
		return err
	}
	w, err := s.request(ctx)
	if err != nil {
		return err
	}
	return s.measure(ctx, "j", func(ctx context.Context) (moments, error) {
		if err := s.peer.start(ctx); err != nil {
			return nil, err
		}
		return s.board.await(ctx, w)
	})
}
