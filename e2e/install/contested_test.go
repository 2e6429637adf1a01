package install_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// fight lets another writer set a ConfigMap's value to its own as soon as it has
// another one, at most so many times. It counts how often it did.
func fight(ctx context.Context, ns, name string, times int64) *atomic.Int64 {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	watcher, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: plane.Client().Scheme()})
	Expect(err).NotTo(HaveOccurred())
	w, err := watcher.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(ns), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	Expect(err).NotTo(HaveOccurred())
	won, done := &atomic.Int64{}, make(chan struct{})
	DeferCleanup(func() { cancel(); w.Stop(); <-done })
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok || cm.Data["value"] == "theirs" || won.Load() >= times {
				continue
			}
			if merge(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, name)) == nil {
				won.Add(1)
			}
		}
	}()
	return won
}

var _ = Describe("A fight over a field", func() {
	It("is given up after three corrections in a minute, said once, and begun anew by a change in Git", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 2)
		mark := marked(ctx)
		won := fight(ctx, ns, "a", 1000)
		says(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a", "mallory", "drift.ignore")
		Eventually(ctx, won.Load, soon, "10ms").Should(BeEquivalentTo(4), "its first write and one after each correction")
		noMore := func(n int) {
			GinkgoHelper()
			Consistently(ctx, func() int { return len(writes(ctx, ns, mark)) }, quiet, "500ms").Should(Equal(n), "it is left alone")
		}
		noMore(3)
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "theirs"))
		var about []corev1.Event
		Eventually(ctx, func() []corev1.Event {
			about = slices.DeleteFunc(eventsOf(ctx, in), func(e corev1.Event) bool { return e.Type != corev1.EventTypeWarning || isEarly(e) })
			return about
		}, soon).Should(HaveLen(1))
		Expect(about[0].Reason).To(Equal("Contested"))
		Expect(about[0].Message).To(And(ContainSubstring("mallory"), ContainSubstring("ConfigMap "+ns+"/a")))
		Expect(about[0].Count).To(BeNumerically("<=", 1))

		By("the other objects are put right as ever")
		was := seen(ctx, ns, "b")
		Expect(merge(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		restored(ctx, was)
		noMore(4)

		By("a change in Git")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"), configMap("b", "1"))
		Eventually(ctx, func() int { return len(writes(ctx, ns, mark)) }, soon, "50ms").Should(BeNumerically(">=", 5), "it is applied")
		Eventually(ctx, func(g Gomega) {
			n := len(writes(ctx, ns, mark))
			g.Expect(n).To(BeNumerically("<=", 8), "corrections of more than a minute ago do not count: up to three again")
			g.Consistently(ctx, func() int { return len(writes(ctx, ns, mark)) }, quiet, "500ms").Should(Equal(n))
		}, soon).Should(Succeed(), "it is left alone again")
		says(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a")
	})

	It("is over when the other writer gives up, at the latest after the interval", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 1, func(in *appsv1.KsctlInstall) { in.Spec.Interval = &metav1.Duration{Duration: 10 * time.Second} })
		fight(ctx, ns, "a", 4)
		says(ctx, in, "False", "Contested", "mallory")
		began := time.Now()
		Eventually(ctx, func() (string, error) { err := get(ctx, in); return ready(in).Reason, err }, 2*soon, "100ms").Should(Equal("ReconciliationSucceeded"))
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"))
		AddReportEntry("settled after", time.Since(began).Round(time.Second).String(), ReportEntryVisibilityAlways)
		Eventually(ctx, told(ctx, in, "Contested"), soon).Should(HaveLen(1), "a short interval does not say it again and again")
		Consistently(ctx, told(ctx, in, "Contested"), "1s").Should(ConsistOf(HaveField("Count", BeNumerically("<=", 1))))
	})

	It("is tried again when a person asks for it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 1)
		fight(ctx, ns, "a", 4)
		says(ctx, in, "False", "Contested", "mallory")
		answered(ctx, in, "again")
		becomes(ctx, in, "True", "")
		Expect(seen(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"))
	})

	It("is one as well when the object is deleted over and over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := settled(ctx, ns, 1)
		mark := marked(ctx)
		for range 4 {
			Eventually(ctx, func() error { return plane.Client().Delete(ctx, aConfigMap(ns, "a")) }, soon, "5ms").Should(Succeed())
		}
		says(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a")
		Consistently(ctx, func() int { return len(writes(ctx, ns, mark)) }, quiet, "500ms").Should(Equal(3), "it is left alone")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		atRevision(ctx, in, "main@sha1:2")
	})

	It("is one as well with a webhook that undoes what we send", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		mutate(ctx, ns, "", "configmaps", strings.Replace(configMap("probe", "1"), "{name: probe}", "{name: probe, labels: {probe: really}}", 1),
			func(int64, []byte) []map[string]any {
				return []map[string]any{op("replace", "/metadata/labels", map[string]string{})}
			})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		mark := marked(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		says(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a")
		Consistently(ctx, func() int { return len(writes(ctx, ns, mark)) }, quiet, "500ms").Should(Equal(4), "a create and three corrections")
		removed(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})
})
