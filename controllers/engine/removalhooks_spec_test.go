package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks"
)

// hooksFor returns the hooks of component "shop": "first" and "second" before its removal, "last"
// and "first" again after it. The ConfigMap "kept" stands for the Secret that keeps them: without
// it, there are none.
func hooksFor(ctx context.Context, p *process, o *owner, ns string) []plan.RemovalHooks {
	kept := stacks.Ref{Kind: "ConfigMap", Namespace: ns, Name: "kept"}.ID()
	exists := slices.ContainsFunc(labeledConfigMaps(ctx, ns), func(cm corev1.ConfigMap) bool {
		return cm.Name == "kept"
	})
	if _, listed := o.inv.Get(kept); !listed || !exists {
		return nil
	}
	pre, post := render("shop", configMap(ns, "first", "1"), configMap(ns, "second", "1")),
		render("shop", configMap(ns, "last", "1"), configMap(ns, "first", "2"))
	for i := range pre.Objects {
		pre.Objects[i].Hook = &stacks.Hook{Phase: stacks.HookPre, Weight: i}
	}
	for i := range post.Objects {
		post.Objects[i].Hook = &stacks.Hook{Phase: stacks.HookPre}
	}
	prepared := engine.Prepare(ctx, []stacks.RenderedComponent{pre, post}, o.policies, p.target.Discovery)
	return []plan.RemovalHooks{{Secret: kept, Pre: prepared[0], Post: prepared[1]}}
}

// hookWatch records the objects that exist before and after each write.
type hookWatch struct {
	crashHook
	namespace string
	uids      map[string][]types.UID
}

func (w *hookWatch) boundary(ctx context.Context, kind engine.WriteKind, after bool) error {
	var names []string
	for _, cm := range labeledConfigMaps(ctx, w.namespace) {
		names = append(names, cm.Name)
		if !slices.Contains(w.uids[cm.Name], cm.UID) {
			w.uids[cm.Name] = append(w.uids[cm.Name], cm.UID)
		}
	}
	Expect(names).NotTo(ContainElements("last", "main"), "the last hook runs after the removal")
	return w.crashHook.boundary(ctx, kind, after)
}

// hookedTeardown removes the objects of an owner with hooks. It ends when nothing is left, or with
// a crash.
func hookedTeardown(ctx context.Context, p *process, o *owner, w *hookWatch) (crashed bool) {
	GinkgoHelper()
	Eventually(func() error {
		pass := p.pass(o)
		pass.RemovalHooks = hooksFor(ctx, p, o, o.install.Namespace)
		_, err := p.engine.Teardown(ctx, pass)
		if err == nil {
			err = writeOutcome(ctx, o, &w.crashHook)
		}
		if crashed = errors.Is(err, errInjectedCrash); crashed {
			return nil
		}
		if err == nil && o.inv.Len() > 0 {
			err = fmt.Errorf("%d entries are left", o.inv.Len())
		}
		return err
	}, shortRetry, "10ms").Should(Succeed(), "the removal continues")
	return crashed
}

var _ = Describe("The hooks of a removal", suite.Safety, func() {
	It("each run once and in order, after a crash before or after any write", func(ctx SpecContext) {
		boundaries := 0
		for at := 1; ; at++ {
			ns := namespaceFor(ctx)
			newOwner(ctx, ns, "i")
			p := startProcess(ns, engine.Options{})
			p.reconcileUntilReady(ctx, loadOwner(ctx, ns, "i"),
				[]stacks.RenderedComponent{render("shop", configMap(ns, "kept", "1"), configMap(ns, "main", "1"))})
			p.stop()

			w := &hookWatch{crashHook: crashHook{at: at}, namespace: ns, uids: map[string][]types.UID{}}
			p = startProcess(ns, engine.Options{WriteHook: w.boundary, Concurrency: 1})
			crashed := hookedTeardown(ctx, p, loadOwner(ctx, ns, "i"), w)
			p.stop()
			where := w.last
			if crashed {
				w.crashHook = crashHook{at: 1000}
				p = startProcess(ns, engine.Options{WriteHook: w.boundary, Concurrency: 1})
				Expect(hookedTeardown(ctx, p, loadOwner(ctx, ns, "i"), w)).To(BeFalse())
				p.stop()
			}
			Expect(labeledConfigMaps(ctx, ns)).To(BeEmpty(), "crash at %s", where)
			for _, hook := range []string{"first", "second", "last"} {
				Expect(w.uids[hook]).To(HaveLen(1), "crash at %s: %s", where, hook)
			}
			if !crashed {
				boundaries = at - 1
				break
			}
		}
		Expect(boundaries).To(BeNumerically(">=", 20), "the hook is called before and after each write")
		AddReportEntry("boundaries", boundaries, ReportEntryVisibilityAlways)
	})
})
