package live_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/controllers/live"
)

var _ = Describe("An index", func() {
	var namespace, owner string

	BeforeEach(func(ctx SpecContext) {
		var err error
		namespace, err = plane.Namespace(ctx, "live")
		Expect(err).NotTo(HaveOccurred())
		owner = ownerKey(namespace)
	})

	It("indexes existing and new objects, drift and deletions, and notifies the owner", func(ctx SpecContext) {
		early := apply(ctx, configMaps, marked(namespace, configMap("early", "1")))
		ix, notified := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace), PageSize: 1})
		Expect(reason(ix, configMaps)()).To(Equal(live.NotWatched))
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		expectSynced(ix, configMaps)
		Eventually(notified.count).WithArguments(owner).Should(Equal(1), "one notification that the kind is synced")
		want, err := live.Project(early)
		Expect(err).NotTo(HaveOccurred())
		Expect(getObject(ix, refOf(early))()).To(Equal(want), "pack and unpack keep the projection")

		late := apply(ctx, configMaps, marked(namespace, configMap("late", "1")))
		Eventually(has(ix, refOf(late))).Should(BeTrue(), "a new object is indexed")
		Eventually(notified.count).WithArguments(owner).
			Should(BeNumerically(">=", 2), "a notification of the new object; a restarted watch may add another")

		before := getObject(ix, refOf(late))()
		n := notified.count(owner)
		patch(ctx, configMaps, namespace, "late", "data: {key: other}")
		Eventually(func() bool { return live.Drifted(before.OwnedHash, getObject(ix, refOf(late))().OwnedHash) }).
			Should(BeTrue(), "drift is detected")
		Expect(getObject(ix, refOf(late))().OtherManager).To(Equal("kubectl-edit"))
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">", n), "a notification of the drift")

		Expect(resource(configMaps, namespace).Delete(ctx, "late", metav1.DeleteOptions{})).To(Succeed())
		Eventually(has(ix, refOf(late))).Should(BeFalse(), "a deleted object is removed")
		Expect(ix.Stats().Confirms).To(And(BeNumerically(">=", 1), BeNumerically("<=", 5)),
			"one GET confirms the deletion, or a few if one fails")
		Expect(notified.owners()).To(Equal(owner))
	})

	It("reports a terminating object with its finalizers", func(ctx SpecContext) {
		ix, notified := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		u := marked(namespace, configMap("stuck", "1"))
		u.SetFinalizers([]string{"example.com/stuck"})
		u = apply(ctx, configMaps, u)
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is indexed")
		Expect(resource(configMaps, namespace).Delete(ctx, "stuck", metav1.DeleteOptions{})).To(Succeed())
		Eventually(getObject(ix, refOf(u))).Should(And(
			HaveField("Deleting", true),
			HaveField("Readiness", live.Terminating),
			HaveField("Finalizers", []string{"example.com/stuck"}),
			HaveField("DeletionTimestamp", BeTemporally("~", time.Now(), time.Hour)),
		), "the object is indexed as terminating")
		n := notified.count(owner)
		patch(ctx, configMaps, namespace, "stuck", "metadata: {finalizers: null}")
		Eventually(has(ix, refOf(u))).Should(BeFalse(), "the object is removed from the index")
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was notified")
	})

	It("keeps an object without its label and indexes it again with the label", func(ctx SpecContext) {
		ix, notified := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		u := marked(namespace, configMap("a", "1"))
		first := apply(ctx, configMaps, u)
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is indexed")
		n := notified.count(owner)

		unlabelled := patch(ctx, configMaps, namespace, "a", "metadata: {labels: {"+live.OwnerLabel+": null}}")
		Eventually(getObject(ix, refOf(u))).Should(And(
			HaveField("LabelLost", true),
			HaveField("UID", first.GetUID()),
			HaveField("ResourceVersion", unlabelled.GetResourceVersion()),
		), "the lost label is indexed")
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was notified")

		again := apply(ctx, configMaps, u)
		_, err := ix.Observe(again)
		Expect(err).NotTo(HaveOccurred())
		Expect(getObject(ix, refOf(u))()).
			To(And(HaveField("LabelLost", false), HaveField("ResourceVersion", again.GetResourceVersion())))

		changed := patch(ctx, configMaps, namespace, "a", "data: {key: x}")
		Eventually(getObject(ix, refOf(u))).Should(HaveField("ResourceVersion", changed.GetResourceVersion()),
			"the watch delivers the object again")
	})

	It("excludes copies that other controllers make", func(ctx SpecContext) {
		slices := mapping("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", meta.RESTScopeNamespace)
		ix, notified := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{deployments, replicaSets, services, slices})
		expectSynced(ix, deployments, replicaSets, services, slices)

		// The Deployment controller copies the labels of the pod template and the annotations
		// of the Deployment to the ReplicaSet.
		d := parse(deploymentYAML)
		Expect(unstructured.SetNestedField(d.Object, installation(namespace),
			"spec", "template", "metadata", "labels", live.OwnerLabel)).To(Succeed())
		d = apply(ctx, deployments, marked(namespace, d))
		s := apply(ctx, services,
			marked(namespace,
				parse("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: "+
					"[{port: 80}]}}")))

		Eventually(func(g Gomega) {
			list, err := resource(replicaSets, namespace).List(ctx, metav1.ListOptions{LabelSelector: live.OwnerLabel})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Items).To(HaveLen(1))
			g.Expect(list.Items[0].GetAnnotations()).
				To(HaveKeyWithValue(live.MarkAnnotation, d.GetAnnotations()[live.MarkAnnotation]))
			list, err = resource(slices, namespace).List(ctx, metav1.ListOptions{LabelSelector: live.OwnerLabel})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Items).To(HaveLen(1))
		}).Should(Succeed(), "controllers make copies")
		Eventually(func() uint64 {
			return ix.Stats().Copies
		}).Should(BeNumerically(">=", 2), "the index saw the copies")
		// Each kind has its own watch: one may be behind the others.
		Eventually(has(ix, refOf(d))).Should(BeTrue(), "the Deployment is indexed")
		Eventually(has(ix, refOf(s))).Should(BeTrue(), "the Service is indexed")
		Eventually(notified.count).WithArguments(owner).ShouldNot(BeZero(), "the owner was notified")
		Expect(ix.Stats().Objects).To(Equal(2), "the Deployment and the Service")
		Expect(notified.owners()).To(Equal(owner))
	})

	It("keeps an object without its mark and excludes a copy of it", func(ctx SpecContext) {
		ix, _ := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		u := apply(ctx, configMaps, marked(namespace, configMap("a", "1")))
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is indexed")
		patch(ctx, configMaps, namespace, "a", "metadata: {annotations: {"+live.MarkAnnotation+": null}}")
		Eventually(getObject(ix, refOf(u))).Should(And(HaveField("Mark", live.Mark{}), HaveField("UID", u.GetUID())),
			"the object is indexed without a mark")

		renamed := u.DeepCopy()
		renamed.SetName("b")
		renamed.SetUID("")
		renamed.SetResourceVersion("")
		renamed.SetManagedFields(nil)
		renamed = applyAs(ctx, "other", configMaps, renamed)
		Eventually(func() uint64 { return ix.Stats().Copies }).Should(BeEquivalentTo(1), "the index saw the copy")
		Expect(has(ix, refOf(renamed))()).To(BeFalse())
	})

	It("distinguishes objects with the same name by uid", func(ctx SpecContext) {
		ix, _ := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		u := marked(namespace, configMap("a", "1"))
		first := apply(ctx, configMaps, u)
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is indexed")

		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		theirs := configMap("a", "theirs")
		theirs.SetNamespace(namespace)
		applyAs(ctx, "other", configMaps, theirs)
		Eventually(has(ix, refOf(u))).Should(BeFalse(), "the object of the other manager is not indexed")

		// Another manager restores our object from a backup, including its label and mark.
		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		second := applyAs(ctx, "other", configMaps, u)
		Expect(second.GetUID()).NotTo(Equal(first.GetUID()))
		Eventually(getObject(ix, refOf(u))).
			Should(HaveField("UID", second.GetUID()), "the restored object is indexed with its own uid")
	})

	It("does not notify of irrelevant changes", func(ctx SpecContext) {
		// Sorts last: of two owners in one batch, this one is notified second.
		const another = "~another"
		ix, notified := startIndex(plane.Config(), live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		u := apply(ctx, configMaps, marked(namespace, configMap("a", "1")))
		other := marked(namespace, configMap("b", "1"))
		other.SetAnnotations(
			map[string]string{live.MarkAnnotation: live.Mark{Owner: another, ID: refOf(other).ID()}.String()})
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is indexed")
		Eventually(notified.count).WithArguments(owner).ShouldNot(BeZero(), "the owner was notified")
		expectSynced(ix, configMaps)
		apply(ctx, configMaps, other)
		Eventually(notified.count).WithArguments(another).Should(Equal(1), "the other owner was notified of its object")
		n := notified.count(owner)

		theirs := patch(ctx, configMaps, namespace, "a", "metadata: {annotations: {heartbeat: x}}")
		Eventually(getObject(ix, refOf(u))).Should(HaveField("ResourceVersion", theirs.GetResourceVersion()),
			"the change is indexed")
		// Notifications are ordered: after this one, an earlier one would have arrived.
		patch(ctx, configMaps, namespace, "b", "data: {key: x}")
		Eventually(notified.count).WithArguments(another).Should(Equal(2), "the other owner was notified of drift")
		Expect(notified.count(owner)).To(Equal(n), "the owner was not notified of a heartbeat")
	})

	It("stops watching kinds without users", func(ctx SpecContext) {
		ix, _ := startIndex(plane.Config(),
			live.Options{OwnerID: installation(namespace), IdleGracePeriod: 40 * time.Millisecond})
		ix.SetOwnerKinds("one", []*meta.RESTMapping{configMaps, secrets})
		ix.SetOwnerKinds("two", []*meta.RESTMapping{configMaps})
		expectSynced(ix, configMaps, secrets)
		u := apply(ctx, configMaps, marked(namespace, configMap("a", "1")))
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is indexed")
		ix.SetOwnerKinds("one", nil)
		Eventually(reason(ix, secrets)).Should(Equal(live.NotWatched), "Secrets have no users")
		Expect(reason(ix, configMaps)()).To(BeEmpty())
		ix.SetOwnerKinds("two", nil)
		Eventually(reason(ix, configMaps)).Should(Equal(live.NotWatched), "ConfigMaps have no users")
		Eventually(ix.Stats).Should(And(HaveField("Objects", 0), HaveField("Watches", 0)))
		ix.SetOwnerKinds("two", []*meta.RESTMapping{configMaps})
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is indexed again")
	})

	It("indexes an object in the API version of its last apply", func(ctx SpecContext) {
		v1 := mapping("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", meta.RESTScopeNamespace)
		v2 := mapping("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", meta.RESTScopeNamespace)
		ix, _ := startIndex(plane.Config(),
			live.Options{OwnerID: installation(namespace), IdleGracePeriod: 40 * time.Millisecond})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{v1, v2})
		expectSynced(ix, v1)
		h2 := apply(ctx, v2,
			marked(namespace,
				parse(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {maxReplicas: 2,
			scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`)))
		h1 := apply(ctx, v1,
			marked(namespace,
				parse(`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: b}, spec: {maxReplicas: 2, targetCPUUtilizationPercentage: 50,
			scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}`)))
		for _, u := range []struct{ ref, version string }{{"a", "v2"}, {"b", "v1"}} {
			want, err := live.Project(h2)
			if u.version == "v1" {
				want, err = live.Project(h1)
			}
			Expect(err).NotTo(HaveOccurred())
			Eventually(getObject(ix, want.Ref)).
				Should(And(HaveField("Version", u.version), HaveField("OwnedHash", want.OwnedHash)),
					"%s is indexed in %s", u.ref, u.version)
		}
		lists := ix.Stats().Lists
		Expect(lists).To(BeNumerically(">=", 2), "one list per version")
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{v2})
		Eventually(getObject(ix, refOf(h1))).
			Should(HaveField("Version", "v2"), "the remaining watch is authoritative for the object")
		Eventually(func() uint64 {
			return ix.Stats().Lists
		}).Should(BeNumerically(">", lists), "the remaining watch relists")
		expectSynced(ix, v2)
	})
})
