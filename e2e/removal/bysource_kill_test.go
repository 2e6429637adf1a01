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
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// createAll creates ConfigMaps with eight workers.
func createAll(ctx context.Context, ns, value string, names []string) {
	GinkgoHelper()
	todo := make(chan string, len(names)) // buffered: sending must not block when all workers have failed
	for _, name := range names {
		todo <- name
	}
	close(todo)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			defer GinkgoRecover()
			for name := range todo {
				cm := &corev1.ConfigMap{ObjectMeta: objectMeta(ns, name), Data: map[string]string{"value": value}}
				Expect(h.ControlPlane.Client().Create(ctx, cm)).To(Succeed())
			}
		})
	}
	wg.Wait()
}

// 1,200 objects do not fit into one part of an inventory.
var _ = Describe("A KsctlRemove of 1,200 objects that another tool "+
	"applied", suite.Safety, suite.Repeat, Serial, func() {
	It("removes exactly these although the controller is killed repeatedly", func(ctx SpecContext) {
		const n = 1200
		kills := 3
		if suite.Long() {
			kills = 8
		}
		ns := namespaceFor(ctx)
		before := objectsIn(ctx, ns)
		random := rand.New(rand.NewPCG(seed(), 3))
		files, names := map[string]string{}, make([]string, n)
		for i := range n {
			names[i] = fmt.Sprintf("c%04d", i)
			files[fmt.Sprintf("main/%d.yaml", i)] = configMap(names[i], "1")
		}
		Expect(h.PublishSource(ctx, ns, "src", "r1", harness.SourceTree(harness.OneComponent, files))).To(Succeed())
		changed, foreign := names[7], "foreign"
		createAll(ctx, ns, "1", append(names[8:], names[:7]...))
		createAll(ctx, ns, "theirs", []string{changed, foreign})

		through, err := proxy.New(h.ControlPlane.Config(), 1)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(through.Close)
		p := startProcess(ctx, ns, through)
		rm := newRemoveBySource(ctx, ns, "r", func(rm *appsv1.KsctlRemove) {
			rm.Labels = map[string]string{controllerLabel: ns}
		})
		Eventually(ctx, func() (*appsv1.Removal, error) {
			err := get(ctx, rm)
			return rm.Status.Removal, err
		}, long, "200ms").ShouldNot(BeNil())
		digest := awaitPreview(ctx, rm, n-1)
		p.Kill()
		approve(ctx, rm, digest)
		left := func() (writes int) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
			Expect(h.ControlPlane.Client().List(ctx, list, client.InNamespace(ns))).To(Succeed())
			for i := range list.Items {
				o := &list.Items[i]
				switch {
				case !slices.Contains(names, o.Name) || o.Name == changed:
				case o.Annotations[live.MarkAnnotation] != "":
					writes++
				default: // the mark is written before the deletion
					writes += 2
				}
			}
			return writes
		}
		killed := killRepeatedly(ctx, ns, through, random, kills, left)
		Eventually(ctx, left, long, "500ms").Should(BeZero(), "approved objects are removed")
		AddReportEntry("writes left at each kill", fmt.Sprint(killed), ReportEntryVisibilityAlways)
		removeBySourceReports(ctx, rm, metav1.ConditionTrue, appsv1.RemovedReason,
			"objects of the stack app were removed", "1 are left")
		Expect(remainingReason(rm, ns+"_"+changed+"__ConfigMap")).To(HavePrefix("NotMatched: "))
		Expect(objectsIn(ctx, ns)).
			To(ConsistOf(append(before, "/ConfigMap "+ns+"/"+changed, "/ConfigMap "+ns+"/"+foreign)))
	}, SpecTimeout(20*time.Minute))
})
