package install_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// timeline has the times when the Deployments of a namespace were created and became ready.
type timeline struct {
	mu             sync.Mutex
	created, ready map[string]time.Time
}

// watchDeployments records the Deployments of a namespace for the rest of the spec.
func watchDeployments(ctx context.Context, ns string) *timeline {
	GinkgoHelper()
	c, err := dynamic.NewForConfig(plane.Config())
	Expect(err).NotTo(HaveOccurred())
	w, err := c.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).
		Namespace(ns).Watch(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.Stop)
	t := &timeline{created: map[string]time.Time{}, ready: map[string]time.Time{}}
	go func() {
		for e := range w.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok {
				t.record(e.Type, u, time.Now())
			}
		}
	}()
	return t
}

func (t *timeline) record(kind watch.EventType, u *unstructured.Unstructured, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kind == watch.Added {
		t.created[u.GetName()] = at
	}
	res, err := status.Compute(u)
	if err == nil && res.Status == status.CurrentStatus && t.ready[u.GetName()].IsZero() {
		t.ready[u.GetName()] = at
	}
}

// delay returns the time from the readiness of one Deployment to the creation of another. It
// waits until the watch has delivered both, since the watch may lag behind the status.
func (t *timeline) delay(ctx context.Context, one, other string) (d time.Duration) {
	GinkgoHelper()
	Eventually(ctx, func() bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		ready, created := t.ready[one], t.created[other]
		d = created.Sub(ready)
		return !ready.IsZero() && !created.IsZero()
	}, soon, "10ms").Should(BeTrue(), "%s is ready and %s is created", one, other)
	return d
}

var _ = Describe("Order", func() {
	It("applies a CRD, its object, the operator and a claim of one component in one reconcile, and then the "+
		"dependent component", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		DeferCleanup(func(ctx SpecContext) {
			_ = plane.Client().Delete(ctx, &corev1.PersistentVolume{ObjectMeta: objectMeta("", ns)})
			_ = plane.Client().Delete(ctx, &storagev1.StorageClass{ObjectMeta: objectMeta("", ns)})
		})
		volume := fmt.Sprintf(`
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  storageClassName: %[1]s
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  local: {path: /nowhere}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-0]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: %[1]s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`, ns)
		operator := `apiVersion: apps/v1
kind: Deployment
metadata: {name: operator}
spec:
  selector: {matchLabels: {app: operator}}
  template:
    metadata: {labels: {app: operator}}
    spec:
      containers: [{name: main, image: "example.com/main:1", volumeMounts: [{name: data, mountPath: /data}]}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
		publish(ctx, ns, "src", "main@sha1:1", tree(components("operator", "app:operator"), map[string]string{
			"operator/crd.yaml": definition(group, "Namespaced"), "operator/object.yaml": widget(group, "first"),
			"operator/operator.yaml": operator, "operator/volume.yaml": volume, "app/app.yaml": deployment("app", "")}))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")

		claim := &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(ns, "data")}
		Expect(get(ctx, claim)).To(Succeed())
		Expect(claim.Status.Phase).To(Equal(corev1.ClaimBound), "the operator's pod is its first consumer")
		writes := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
		Expect(writes).To(HaveLen(7), "one request for each object: %s", writes)
		Expect(writes.Where(cluster.Failed)).To(BeEmpty(), "no request is made that must fail: %s", writes)
		Eventually(ctx, eventsWithReason(ctx, in, "ReconciliationSucceeded"), soon).
			ShouldNot(BeEmpty(), "all earlier events have arrived, since events are sent in order")
		for _, e := range slices.DeleteFunc(eventsOf(ctx, in), isStartupEvent) {
			Expect(e.Type).To(Equal(corev1.EventTypeNormal), "%s: %s", e.Reason, e.Message)
		}
	})

	It("starts each wave on the event that the previous wave is ready, not on a timer", func(ctx SpecContext) {
		const installs = 5
		var latencies []time.Duration
		for range installs {
			ns := namespaceFor(ctx)
			t := watchDeployments(ctx, ns)
			publish(ctx, ns, "src", "main@sha1:1", tree(components("one", "two:one", "three:two"), map[string]string{
				"one/d.yaml": deployment("one", ""), "two/d.yaml": deployment("two", ""),
				"three/d.yaml": deployment("three", "")}))
			in := newInstall(ctx, ns, "i", hourly)
			atRevision(ctx, in, "main@sha1:1")
			latencies = append(latencies, t.delay(ctx, "one", "two"), t.delay(ctx, "two", "three"))
		}
		slices.Sort(latencies)
		p50, p90 := percentile(latencies, 50), percentile(latencies, 90)
		AddReportEntry("from ready to the next wave's first create",
			fmt.Sprintf("p50 %s, p90 %s of %d", p50, p90, len(latencies)))
		Expect(latencies[0]).To(BeNumerically(">", 0), "no wave starts before the previous one is ready")
		Expect(p50).To(BeNumerically("<", 30*time.Second),
			"also on a busy machine: every timer of the install fires after an hour")
	})

	It("delays only direct and indirect dependents of an unready component", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("slow", "after:slow", "last:after", "other"),
			map[string]string{
				"slow/d.yaml": deployment("slow", cluster.FateNeverReady), "after/a.yaml": configMap("after", "1"),
				"last/a.yaml": configMap("last", "1"), "other/a.yaml": configMap("other", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		Eventually(ctx, func() bool {
			return !absent(ctx, aConfigMap(ns, "other"))
		}, soon).Should(BeTrue(), "an independent branch is applied")
		reports(ctx, in, "Unknown", "Progressing", `component "slow"`, "Deployment "+ns+"/slow",
			`component "after": waits for component slow`)
		Expect(component(in, "other").Ready).To(BeTrue())
		Consistently(ctx, func() bool {
			return absent(ctx, aConfigMap(ns, "after")) && absent(ctx, aConfigMap(ns, "last"))
		}, "1s").
			Should(BeTrue(), "their dependency is not ready")
		makePodsReady(ctx, ns)
		atRevision(ctx, in, "main@sha1:1")
	})

	It("applies independent branches when one fails, and reports the failed object", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		wrong := "apiVersion: v1\nkind: Service\nmetadata: {name: wrong}\nspec: {ports: [{port: 99999}]}\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(components("bad", "after:bad", "good", "better:good"),
			map[string]string{
				"bad/s.yaml": wrong, "bad/a.yaml": configMap("beside", "1"), "after/a.yaml": configMap("after", "1"),
				"good/d.yaml": deployment("good", ""), "better/a.yaml": configMap("better", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, in)).To(Succeed())
			g.Expect(component(in, "better").Ready).To(BeTrue())
		}, soon).Should(Succeed(), "the other branch is installed")
		reports(ctx, in, "False", "ReconciliationFailed", `component "bad"`, "Service "+ns+"/wrong",
			"spec.ports[0].port")
		Expect(absent(ctx, aConfigMap(ns, "beside"))).To(BeFalse(), "the other objects of the component are applied")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeTrue())
		Expect(component(in, "after").Message).To(Equal("waits for component bad"))

		publish(ctx, ns, "src", "main@sha1:2", tree(components("bad", "after:bad", "good", "better:good"),
			map[string]string{
				"bad/a.yaml": configMap("beside", "1"), "after/a.yaml": configMap("after", "1"),
				"good/d.yaml": deployment("good", ""), "better/a.yaml": configMap("better", "1")}))
		atRevision(ctx, in, "main@sha1:2")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
	})

	It("reports a wave that is not ready within spec.timeout, continues, and becomes "+
		"Ready later", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(components("slow", "after:slow"), map[string]string{
			"slow/d.yaml": deployment("slow", cluster.FateNeverReady), "after/a.yaml": configMap("after", "1")}))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.Timeout = &metav1.Duration{Duration: 10 * time.Second} // long enough to report Progressing first
		})
		reports(ctx, in, "Unknown", "Progressing", "slow")
		reports(ctx, in, "False", "Timeout", "not ready within 10s", "Deployment "+ns+"/slow")
		Expect(condition(in, "Reconciling")).NotTo(BeNil(), "the reconcile continues")
		Expect(condition(in, "Stalled")).To(BeNil())
		makePodsReady(ctx, ns)
		atRevision(ctx, in, "main@sha1:1")
		Expect(absent(ctx, aConfigMap(ns, "after"))).To(BeFalse())
		Expect(condition(in, "Reconciling")).To(BeNil())
	})
})
