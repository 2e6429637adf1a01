package removal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/controllers/remove/bysource"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// createAll makes ConfigMaps as somebody else would, eight at a time.
func createAll(ctx context.Context, ns, value string, names []string) {
	GinkgoHelper()
	todo := make(chan string, len(names)) // or it would be waited for workers that have failed
	for _, name := range names {
		todo <- name
	}
	close(todo)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			defer GinkgoRecover()
			for name := range todo {
				cm := &corev1.ConfigMap{ObjectMeta: named(ns, name), Data: map[string]string{"value": value}}
				Expect(h.Plane.Client().Create(ctx, cm)).To(Succeed())
			}
		})
	}
	wg.Wait()
}

// More objects than one part of an inventory holds.
var _ = Describe("A KsctlRemove of 1,200 objects that somebody else applied", suite.Safety, suite.Repeat, Serial, func() {
	It("takes exactly these though the controller is killed again and again", func(ctx SpecContext) {
		const n = 1200
		kills := 3
		if suite.Long() {
			kills = 8
		}
		ns := namespaceFor(ctx)
		before := inside(ctx, ns)
		random := rand.New(rand.NewPCG(seed(), 3))
		files, names := map[string]string{}, make([]string, n)
		for i := range n {
			names[i] = fmt.Sprintf("c%04d", i)
			files[fmt.Sprintf("main/%d.yaml", i)] = configMap(names[i], "1")
		}
		Expect(h.Publish(ctx, ns, "src", "r1", harness.Tree(harness.OneComponent, files))).To(Succeed())
		changed, foreign := names[7], "foreign"
		createAll(ctx, ns, "1", append(names[8:], names[:7]...))
		createAll(ctx, ns, "theirs", []string{changed, foreign})

		through, err := proxy.New(h.Plane.Config(), 1)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(through.Close)
		p := life(ctx, ns, through)
		rm := removal(ctx, ns, "r", func(rm *appsv1.KsctlRemove) { rm.Labels = map[string]string{own: ns} })
		Eventually(ctx, func() (*appsv1.Removal, error) { err := get(ctx, rm); return rm.Status.Removal, err }, long, "200ms").ShouldNot(BeNil())
		digest := found(ctx, rm, n-1)
		p.Kill()
		approve(ctx, rm, digest)
		left := func() (writes int) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
			Expect(h.Plane.Client().List(ctx, list, client.InNamespace(ns))).To(Succeed())
			for i := range list.Items {
				o := &list.Items[i]
				switch {
				case !slices.Contains(names, o.Name) || o.Name == changed:
				case o.Annotations[live.MarkAnnotation] != "":
					writes++
				default: // it is marked before it is deleted
					writes += 2
				}
			}
			return writes
		}
		killed := killAgain(ctx, ns, through, random, kills, left)
		Eventually(ctx, left, long, "500ms").Should(BeZero(), "what was approved goes")
		AddReportEntry("killed with so many writes left", fmt.Sprint(killed), ReportEntryVisibilityAlways)
		tells(ctx, rm, metav1.ConditionTrue, bysource.RemovedReason, "objects of the stack app were removed", "1 are left")
		Expect(because(rm, ns+"_"+changed+"__ConfigMap")).To(HavePrefix("NotMatched: "))
		Expect(inside(ctx, ns)).To(ConsistOf(append(before, "/ConfigMap "+ns+"/"+changed, "/ConfigMap "+ns+"/"+foreign)))
	}, SpecTimeout(20*time.Minute))
})
