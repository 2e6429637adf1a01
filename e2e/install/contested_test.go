package install_test

import (
	"context"
	"encoding/json"
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
	"github.com/ksctl/gitops/e2e/cluster"
)

// overwrite starts another writer that sets a value of a ConfigMap whenever it has a different
// one, at most the given number of times. It returns the number of its writes.
func overwrite(ctx context.Context, ns, name string, limit int64) *atomic.Int64 {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	w, err := plane.Client().Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(ns),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	Expect(err).NotTo(HaveOccurred())
	overwrites, done := &atomic.Int64{}, make(chan struct{})
	DeferCleanup(func() { cancel(); w.Stop(); <-done })
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok || cm.Data["value"] == "theirs" || overwrites.Load() >= limit {
				continue
			}
			if mergePatch(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, name)) == nil {
				overwrites.Add(1)
			}
		}
	}()
	return overwrites
}

var _ = Describe("A contested field", func() {
	It("is not corrected after three corrections in a minute, is reported once, and is corrected again after a "+
		"change in Git", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 2)
		mark := auditMark(ctx)
		won := overwrite(ctx, ns, "a", 1000)
		reports(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a", "mallory", "drift.ignore")
		Eventually(ctx, won.Load, soon, "10ms").
			Should(BeEquivalentTo(4), "the first write and one after each correction")
		noMore := func(n int) {
			GinkgoHelper()
			Consistently(ctx, func() int {
				return len(writes(ctx, ns, mark))
			}, quiet, "500ms").Should(Equal(n), "corrections stop")
		}
		noMore(3)
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "theirs"))
		var about []corev1.Event
		Eventually(ctx, func() []corev1.Event {
			about = slices.DeleteFunc(eventsOf(ctx, in), func(e corev1.Event) bool {
				return e.Type != corev1.EventTypeWarning || isStartupEvent(e)
			})
			return about
		}, soon).Should(HaveLen(1))
		Expect(about[0].Reason).To(Equal("Contested"))
		Expect(about[0].Message).To(And(ContainSubstring("mallory"), ContainSubstring("ConfigMap "+ns+"/a")))
		Expect(about[0].Count).To(BeNumerically("<=", 1))

		By("other objects are still corrected")
		was := getConfigMap(ctx, ns, "b")
		Expect(mergePatch(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "b"))).To(Succeed())
		awaitRestored(ctx, was)
		noMore(4)

		By("a change in Git")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"), configMap("b", "1"))
		Eventually(ctx, func() int {
			return len(writes(ctx, ns, mark))
		}, soon, "50ms").Should(BeNumerically(">=", 5), "the change is applied")
		Eventually(ctx, func(g Gomega) {
			n := len(writes(ctx, ns, mark))
			g.Expect(n).To(BeNumerically("<=", 8), "corrections older than a minute do not count: up to three again")
			g.Consistently(ctx, func() int { return len(writes(ctx, ns, mark)) }, quiet, "500ms").Should(Equal(n))
		}, soon).Should(Succeed(), "corrections stop again")
		reports(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a")
	})

	It("is named with its manager and the rule that ends it, after one GET", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", web("1", "a", 1))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		for range 4 {
			kubectl(ctx, ns, "", "set", "image", "deployment/web", "side=example.com/side:theirs")
			Eventually(ctx, func(g Gomega) {
				g.Expect(get(ctx, in)).To(Succeed())
				if ready(in).Reason != "Contested" {
					g.Expect(images(ctx, ns)).To(HaveSuffix("side=side:1"))
				}
			}, soon, "20ms").Should(Succeed(), "the change is reverted, or contested")
		}
		const path = "/spec/template/spec/containers/[name=side]/image"
		reports(ctx, in, "False", "Contested", path+" by kubectl-set;")
		Expect(ready(in).Message).NotTo(ContainSubstring("theirs"), "no values")
		var afterCorrections []string
		for _, r := range requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)),
			cluster.Resource("deployments")) {
			if afterCorrections = append(afterCorrections, r.Verb); r.Verb == "patch" {
				afterCorrections = nil
			}
		}
		Expect(afterCorrections).To(Equal([]string{"get"}), "one GET when the object becomes contested")

		By("adding the rule in the message to the install")
		_, text, found := strings.Cut(ready(in).Message, "add to spec.drift.ignore: ")
		Expect(found).To(BeTrue(), ready(in).Message)
		var rule appsv1.IgnoreRule
		Expect(json.NewDecoder(strings.NewReader(text)).Decode(&rule)).To(Succeed(), text)
		edit(ctx, in, withDrift(appsv1.Drift{Ignore: []appsv1.IgnoreRule{rule}}))
		becomes(ctx, in, "True", "")
		Expect(images(ctx, ns)).To(HaveSuffix("side=side:theirs"))
		stack(ctx, ns, "main@sha1:2", web("2", "a", 1))
		atRevision(ctx, in, "main@sha1:2")
		Expect(images(ctx, ns)).To(Equal("main=main:2serve,a,--quiet side=side:theirs"))
	})

	It("is corrected when the other writer stops, at the latest after the interval", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 1, func(in *appsv1.KsctlInstall) {
			in.Spec.Interval = &metav1.Duration{Duration: 10 * time.Second}
		})
		overwrite(ctx, ns, "a", 4)
		reports(ctx, in, "False", "Contested", "mallory")
		began := time.Now()
		Eventually(ctx, func() (string, error) { err := get(ctx, in); return ready(in).Reason, err }, 2*soon, "100ms").
			Should(Equal("ReconciliationSucceeded"))
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"))
		AddReportEntry("settled after", time.Since(began).Round(time.Second).String(), ReportEntryVisibilityAlways)
		Eventually(ctx, eventsWithReason(ctx, in, "Contested"), soon).
			Should(HaveLen(1), "a short interval does not repeat the event")
		Consistently(ctx, eventsWithReason(ctx, in, "Contested"), "1s").
			Should(ConsistOf(HaveField("Count", BeNumerically("<=", 1))))
	})

	It("is corrected again on a reconcile request", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 1)
		overwrite(ctx, ns, "a", 4)
		reports(ctx, in, "False", "Contested", "mallory")
		requestReconcile(ctx, in, "again")
		becomes(ctx, in, "True", "")
		Expect(getConfigMap(ctx, ns, "a").Data).To(HaveKeyWithValue("value", "1"))
	})

	It("is also reported when another client deletes the object repeatedly", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 1)
		mark := auditMark(ctx)
		for range 4 {
			Eventually(ctx, func() error { return plane.Client().Delete(ctx, aConfigMap(ns, "a")) }, soon, "5ms").
				Should(Succeed())
		}
		reports(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a")
		Consistently(ctx, func() int {
			return len(writes(ctx, ns, mark))
		}, quiet, "500ms").Should(Equal(3), "the object is not recreated")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		atRevision(ctx, in, "main@sha1:2")
	})

	It("is also reported when a webhook reverts each apply", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		mutate(ctx, ns, "", "configmaps",
			strings.Replace(configMap("probe", "1"), "{name: probe}", "{name: probe, labels: {probe: really}}", 1),
			func(int64, []byte) []map[string]any {
				return []map[string]any{jsonPatchOp("replace", "/metadata/labels", map[string]string{})}
			})
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "Contested", "ConfigMap "+ns+"/a")
		Consistently(ctx, func() int {
			return len(writes(ctx, ns, mark))
		}, quiet, "500ms").Should(Equal(4), "a create and three corrections")
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue())
	})
})
