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

var errInjectedCrash = errors.New("injected crash")

// crashHook fails the n-th call of the write hook, and all later ones.
type crashHook struct {
	at, calls int
	last      string
}

func (k *crashHook) boundary(_ context.Context, kind engine.WriteKind, after bool) error {
	k.calls++
	if k.calls >= k.at {
		k.last = fmt.Sprintf("%s, after=%t", kind, after)
		return errInjectedCrash
	}
	return nil
}

func namespaceFor(ctx context.Context) string {
	GinkgoHelper()
	ns, err := controlPlane.Namespace(ctx, "engine")
	Expect(err).NotTo(HaveOccurred())
	return ns
}

func configMap(namespace, name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {value: %q}\n",
		name, namespace, value)
}

// labeledConfigMaps returns the ConfigMaps with the label of an installation.
func labeledConfigMaps(ctx context.Context, namespace string) []corev1.ConfigMap {
	GinkgoHelper()
	var list corev1.ConfigMapList
	Expect(controlPlane.Client().List(ctx, &list, client.InNamespace(namespace),
		client.MatchingLabels{live.OwnerLabel: installation(namespace)})).To(Succeed())
	return list.Items
}

// expectInInventory fails for an existing object that the inventory does not list.
func expectInInventory(ctx context.Context, namespace, name, where string) {
	GinkgoHelper()
	known := loadOwner(ctx, namespace, name).inv
	for _, cm := range labeledConfigMaps(ctx, namespace) {
		id := stacks.Ref{Kind: "ConfigMap", Namespace: cm.Namespace, Name: cm.Name}.ID()
		_, ok := known.Get(id)
		Expect(ok).To(BeTrue(), "crash at %s: %s exists, but the inventory does not list it", where, id)
	}
}

var _ = Describe("The engine", suite.Safety, func() {
	It("converges after a crash before or after any write, and every object is in the "+
		"inventory", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		first := []stacks.RenderedComponent{
			render("one", configMap(ns, "a", "1"), configMap(ns, "b", "1"), configMap(ns, "before", "1")),
			render("two", configMap(ns, "c", "1")),
		}
		first[1].DependsOn, first[1].Wave = []string{"one"}, 1
		second := []stacks.RenderedComponent{render("one", configMap(ns, "a", "2"), configMap(ns, "d", "1"))}
		before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "before"},
			Data: map[string]string{"theirs": "x"}}
		Expect(controlPlane.Client().Create(ctx, before)).To(Succeed())
		boundaries := 0
		for at := 1; ; at++ {
			name := fmt.Sprintf("i%d", at)
			newOwner(ctx, ns, name)
			k := &crashHook{at: at}
			finished := runUntilCrash(ctx, ns, name, k, first, second)
			expectInInventory(ctx, ns, name, k.last)

			p := startProcess(ns, engine.Options{})
			o := loadOwner(ctx, ns, name)
			p.reconcileUntilReady(ctx, o, second)
			var names []string
			for _, cm := range labeledConfigMaps(ctx, ns) {
				names = append(names, cm.Name+"="+cm.Data["value"])
			}
			Expect(names).To(ConsistOf("a=2", "d=1"), "crash at %s", k.last)
			p.teardown(ctx, o)
			Expect(labeledConfigMaps(ctx, ns)).To(BeEmpty(), "crash at %s", k.last)
			Expect(controlPlane.Client().Get(ctx, client.ObjectKeyFromObject(before), before)).
				To(Succeed(), "crash at %s: an object that existed before stays", k.last)
			Expect(before.Data).To(HaveKeyWithValue("theirs", "x"))
			Expect(before.Annotations).NotTo(HaveKey(live.MarkAnnotation), "crash at %s: it is released", k.last)
			p.stop()
			if finished {
				boundaries = at - 1
				break
			}
		}
		// intent, 3 creates; intent, update, create, 2 deletes; 2 deletes; twice each
		Expect(boundaries).To(BeNumerically(">=", 20), "the hook is called before and after each write")
		AddReportEntry("boundaries", boundaries, ReportEntryVisibilityAlways)
	})
})

// writeOutcome writes the status, and calls the hook before and after the write.
func writeOutcome(ctx context.Context, o *owner, k *crashHook) error {
	GinkgoHelper()
	if err := k.boundary(ctx, "outcome", false); err != nil {
		return err
	}
	Expect(o.Persist(ctx)).To(Succeed())
	return k.boundary(ctx, "outcome", true)
}

// runUntilCrash applies, changes and removes objects until the hook fails. It returns true if the
// hook never failed.
func runUntilCrash(ctx context.Context, ns, name string, k *crashHook, first, second []stacks.RenderedComponent) bool {
	GinkgoHelper()
	p := startProcess(ns, engine.Options{WriteHook: k.boundary, Concurrency: 1})
	defer p.stop()
	o := loadOwner(ctx, ns, name)
	for _, want := range [][]stacks.RenderedComponent{first, second, nil} {
		crashed := false
		Eventually(func() error {
			var rep *engine.Report
			var err error
			if want == nil {
				rep, err = p.engine.Teardown(ctx, p.pass(o))
			} else {
				rep, err = p.engine.Reconcile(ctx, p.pass(o), engine.Prepare(ctx, want, o.policies, p.target.Discovery))
			}
			if crashed = errors.Is(err, errInjectedCrash); crashed {
				return nil
			}
			if err != nil {
				return err
			}
			if crashed = writeOutcome(ctx, o, k) != nil; crashed {
				return nil
			}
			if want == nil && o.inv.Len() > 0 || !rep.Plan.Ready() {
				return fmt.Errorf("not there yet: %+v", rep.Plan)
			}
			return nil
		}, shortRetry, "10ms").Should(Succeed(), "the process continues until it crashes")
		if crashed {
			return false
		}
	}
	return true
}
