package plan

import (
	"slices"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// Only the creation of a webhook configuration waits for the workloads that answer it.
func TestNewWebhookWaitsForItsWorkloads(t *testing.T) {
	const hook, web = "hook", "web"
	present := func(name string, readiness live.Readiness) live.Object {
		return liveObject(name, func(o *live.Object) { o.Readiness = readiness })
	}
	applied := func(names ...string) (out []appsv1.InventoryEntry) {
		for _, n := range names {
			out = append(out, entry(n, appsv1.EntryApplied))
		}
		return out
	}
	for name, tc := range map[string]struct {
		world  fixture
		change func(hook, web *Item)
		// sends are the objects that are sent.
		sends []string
		waits bool
		// existing are the objects that the index does not know.
		existing map[string]bool
	}{
		"at the install": {sends: []string{web, "other"}, waits: true},
		"the workload is not ready": {world: fixture{entries: applied(web, "other"),
			live: []live.Object{present(web, live.InProgress), liveObject("other")}}, waits: true},
		"the workload is not ready, and left out of the health": {world: fixture{entries: applied(web, "other"),
			live: []live.Object{present(web, live.InProgress), liveObject("other")}},
			change: func(_, web *Item) { web.IgnoreHealth = true }, waits: true},
		"the workload fails": {world: fixture{entries: applied(web, "other"),
			live: []live.Object{present(web, live.Failed), liveObject("other")}}, waits: true},
		"the workload is ready": {world: fixture{entries: applied(web, "other"),
			live: []live.Object{liveObject(web), liveObject("other")}}, sends: []string{hook}},
		"another object is not ready": {world: fixture{entries: applied(web, "other"),
			live: []live.Object{liveObject(web), present("other", live.InProgress)}}, sends: []string{hook}},
		"the workload has to be updated": {world: fixture{entries: applied(web, "other"),
			live: []live.Object{liveObject(web), liveObject("other")}}, change: func(_, web *Item) {
			web.ContentHash = "new"
		}, sends: []string{web}, waits: true},
		"an update": {world: fixture{entries: applied(hook, web, "other"),
			live: []live.Object{liveObject(hook), present(web, live.InProgress), liveObject("other")}},
			change: func(hook, _ *Item) { hook.ContentHash = "new" }, sends: []string{hook}},
		"a restore": {world: fixture{entries: applied(hook, web, "other"),
			live: []live.Object{present(web, live.InProgress), liveObject("other")}}, sends: []string{hook}},
		"a restore with new content": {world: fixture{entries: applied(hook, web, "other"),
			live: []live.Object{present(web, live.InProgress), liveObject("other")}},
			change: func(hook, _ *Item) { hook.ContentHash = "new" }, sends: []string{hook}},
		"no workload of the component answers": {change: func(hook, _ *Item) { hook.AnsweredBy = nil },
			sends: []string{hook, web, "other"}},
		"another tool has created it": {existing: map[string]bool{ref(hook).ID(): true},
			sends: []string{hook, web, "other"}},
		"the workload is of a later step": {change: func(_, web *Item) { web.Step = 9 },
			sends: []string{hook, "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			items := []Item{item("c", hook), item("c", "other"), item("c", web), item("c", "post")}
			items[0].AnsweredBy, items[3].Step = []string{ref(web).ID()}, 10
			if tc.change != nil {
				tc.change(&items[0], &items[2])
			}
			in := tc.world.snapshot(Component{Name: "c", Items: items})
			in.Existing = tc.existing
			p := Reconcile(in)
			var sent []string
			for _, a := range p.Actions {
				sent = append(sent, a.Item.Name)
			}
			slices.Sort(sent)
			slices.Sort(tc.sends)
			if !slices.Equal(sent, tc.sends) {
				t.Errorf("sends %v, want %v", sent, tc.sends)
			}
			says := ref(hook).String() + " waits until " + ref(web).String()
			if c := p.Components[0]; c.Ready || strings.HasPrefix(c.Message, says) != tc.waits {
				t.Errorf("ready %t, message %q; want %q: %t", c.Ready, c.Message, says, tc.waits)
			}
		})
	}
}

// The message names the webhook and the workload, however many objects are not ready.
func TestWebhookIsNamedBeforeOtherWaits(t *testing.T) {
	w := fixture{}
	c := Component{Name: "c"}
	for _, name := range []string{"a", "b", "d", "e", "web"} {
		c.Items = append(c.Items, item("c", name))
		w.entries = append(w.entries, entry(name, appsv1.EntryApplied))
		w.live = append(w.live, liveObject(name, func(o *live.Object) { o.Readiness = live.InProgress }))
	}
	hook := item("c", "hook")
	hook.Object = stacks.Object{Ref: hook.Ref, Version: "v1", AnsweredBy: []string{ref("web").ID()}}
	c.Items = append(c.Items, hook)
	p := Reconcile(w.snapshot(c))
	want := "ConfigMap ns/hook waits until ConfigMap ns/web, which answers it, is ready: ConfigMap ns/web is InProgress"
	if got := p.Components[0].Message; !strings.HasPrefix(got, want) {
		t.Errorf("message %q, want %q", got, want)
	}
}

// A workload may become ready only when something else is removed, such as a former workload that
// uses the same port.
func TestWebhookThatWaitsDoesNotDelayRemovals(t *testing.T) {
	hook := item("c", "hook")
	hook.AnsweredBy = []string{ref("web").ID()}
	in := fixture{
		entries: []appsv1.InventoryEntry{entry("web", appsv1.EntryApplied), entry("old", appsv1.EntryApplied)},
		live: []live.Object{liveObject("old"),
			liveObject("web", func(o *live.Object) { o.Readiness = live.InProgress })},
	}.snapshot(Component{Name: "c", Items: []Item{hook, item("c", "web")}})
	p := Reconcile(in)
	if len(p.Actions) > 0 || len(p.Removals) != 1 || p.Removals[0].Verb != VerbDelete ||
		p.Removals[0].Entry.ID != ref("old").ID() {
		t.Errorf("actions %+v, removals %+v; want only the removal of the former workload", p.Actions, p.Removals)
	}
	if c := p.Components[0]; c.Ready || c.Released || p.Ready() || p.Settled {
		t.Errorf("got %+v, settled %t; want that the component is neither ready nor released", c, p.Settled)
	}
}
