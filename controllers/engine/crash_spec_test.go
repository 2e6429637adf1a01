package engine_test

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

var errKilled = errors.New("killed")

// killer stops everything at the n-th write boundary, and from then on.
type killer struct {
	at, passed int
	last       string
}

func (k *killer) boundary(_ context.Context, kind engine.WriteKind, after bool) error {
	k.passed++
	if k.passed >= k.at {
		k.last = fmt.Sprintf("%s, after=%t", kind, after)
		return errKilled
	}
	return nil
}

func namespaceFor(ctx context.Context) string {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "engine")
	Expect(err).NotTo(HaveOccurred())
	return ns
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {value: %q}\n", name, namespace, value)
}

// ours lists the objects that carry the label of an installation.
func ours(ctx context.Context, namespace string) []corev1.ConfigMap {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(plane.Client().List(ctx, &list, client.InNamespace(namespace),
		client.MatchingLabels{live.OwnerLabel: installation(namespace)})).To(Succeed())
	return list.Items
}

// expectKnown fails for an object that is there and that no inventory lists.
func expectKnown(ctx context.Context, namespace, name, where string) {
	GinkgoHelper()
	known := load(ctx, namespace, name).inv
	for _, cm := range ours(ctx, namespace) {
		id := stacks.Ref{Kind: "ConfigMap", Namespace: cm.Namespace, Name: cm.Name}.ID()
		_, ok := known.Get(id)
		Expect(ok).To(BeTrue(), "killed at %s: %s exists and the inventory does not list it", where, id)
	}
}

var _ = Describe("The spine", suite.Safety, func() {
	It("converges from a kill at every write boundary, and no object is unknown to the inventory", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		first := []stacks.RenderedComponent{
			render("one", configMap(ns, "a", "1"), configMap(ns, "b", "1"), configMap(ns, "before", "1")),
			render("two", configMap(ns, "c", "1")),
		}
		first[1].DependsOn, first[1].Wave = []string{"one"}, 1
		second := []stacks.RenderedComponent{render("one", configMap(ns, "a", "2"), configMap(ns, "d", "1"))}
		before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "before"}, Data: map[string]string{"theirs": "x"}}
		Expect(plane.Client().Create(ctx, before)).To(Succeed())
		boundaries := 0
		for at := 1; ; at++ {
			name := fmt.Sprintf("i%d", at)
			newOwner(ctx, ns, name)
			k := &killer{at: at}
			finished := lifeUntilKilled(ctx, ns, name, k, first, second)
			expectKnown(ctx, ns, name, k.last)

			p := start(ns, engine.Options{})
			o := load(ctx, ns, name)
			p.settle(ctx, o, second)
			var names []string
			for _, cm := range ours(ctx, ns) {
				names = append(names, cm.Name+"="+cm.Data["value"])
			}
			Expect(names).To(ConsistOf("a=2", "d=1"), "killed at %s", k.last)
			p.teardown(ctx, o)
			Expect(ours(ctx, ns)).To(BeEmpty(), "killed at %s", k.last)
			Expect(plane.Client().Get(ctx, client.ObjectKeyFromObject(before), before)).To(Succeed(), "killed at %s: what was there before us stays", k.last)
			Expect(before.Data).To(HaveKeyWithValue("theirs", "x"))
			Expect(before.Annotations).NotTo(HaveKey(live.MarkAnnotation), "killed at %s: it is released", k.last)
			p.stop()
			if finished {
				boundaries = at - 1
				break
			}
		}
		// intent, 3 creates; intent, update, create, 2 deletes; 2 deletes; twice each
		Expect(boundaries).To(BeNumerically(">=", 20), "each write has a boundary before and after it")
		AddReportEntry("boundaries", boundaries, ReportEntryVisibilityAlways)
	})
})

// writeOutcome writes the status with a boundary on each side.
func writeOutcome(ctx context.Context, o *owner, k *killer) error {
	GinkgoHelper()
	if err := k.boundary(ctx, "outcome", false); err != nil {
		return err
	}
	Expect(o.Persist(ctx)).To(Succeed())
	return k.boundary(ctx, "outcome", true)
}

// lifeUntilKilled installs, changes and removes until the killer strikes. It
// reports whether it never did.
func lifeUntilKilled(ctx context.Context, ns, name string, k *killer, first, second []stacks.RenderedComponent) bool {
	GinkgoHelper()
	p := start(ns, engine.Options{Boundary: k.boundary, Concurrency: 1})
	defer p.stop()
	o := load(ctx, ns, name)
	for _, want := range [][]stacks.RenderedComponent{first, second, nil} {
		killed := false
		Eventually(func() error {
			var rep *engine.Report
			var err error
			if want == nil {
				rep, err = p.engine.Teardown(ctx, p.target, p.client, o, retry)
			} else {
				rep, err = p.engine.Reconcile(ctx, p.target, p.client, o, engine.Prepare(ctx, want, o.policies, p.target.Discovery), retry)
			}
			if killed = errors.Is(err, errKilled); killed {
				return nil
			}
			if err != nil {
				return err
			}
			if killed = writeOutcome(ctx, o, k) != nil; killed {
				return nil
			}
			if want == nil && o.inv.Len() > 0 || !rep.Plan.Ready() {
				return fmt.Errorf("not there yet: %+v", rep.Plan)
			}
			return nil
		}, soon, "10ms").Should(Succeed(), "the life goes on until it is killed")
		if killed {
			return false
		}
	}
	return true
}
