package live_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

	It("knows what was there and what comes, and tells the owner", func(ctx SpecContext) {
		early := apply(ctx, configMaps, marked(namespace, configMap("early", "1")))
		ix, told := run(plane.Config(), live.Options{Owner: installation(namespace), PageSize: 1})
		Expect(reason(ix, configMaps)()).To(Equal(live.NotWatched))
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		synced(ix, configMaps)
		Eventually(told.count).WithArguments(owner).Should(Equal(1), "told once that the kind is synced")
		want, err := live.Project(early)
		Expect(err).NotTo(HaveOccurred())
		Expect(known(ix, refOf(early))()).To(Equal(want), "stored and unpacked, a projection is the same")

		late := apply(ctx, configMaps, marked(namespace, configMap("late", "1")))
		Eventually(has(ix, refOf(late))).Should(BeTrue(), "a new object is known")
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">=", 2), "told of the new object; a watch that is begun anew tells, too")

		before := known(ix, refOf(late))()
		n := told.count(owner)
		patch(ctx, configMaps, namespace, "late", "data: {key: other}")
		Eventually(func() bool { return live.Drifted(before.Owned, known(ix, refOf(late))().Owned) }).Should(BeTrue(), "drift is known")
		Expect(known(ix, refOf(late))().OtherManager).To(Equal("kubectl-edit"))
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">", n), "told of the drift")

		Expect(resource(configMaps, namespace).Delete(ctx, "late", metav1.DeleteOptions{})).To(Succeed())
		Eventually(has(ix, refOf(late))).Should(BeFalse(), "a deletion is known")
		Expect(ix.Stats().Confirms).To(And(BeNumerically(">=", 1), BeNumerically("<=", 5)), "a GET confirmed it, or a few when one failed")
		Expect(told.owners()).To(Equal(owner))
	})

	It("says what happens to an object that is being deleted", func(ctx SpecContext) {
		ix, told := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		u := marked(namespace, configMap("stuck", "1"))
		u.SetFinalizers([]string{"example.com/stuck"})
		u = apply(ctx, configMaps, u)
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is known")
		Expect(resource(configMaps, namespace).Delete(ctx, "stuck", metav1.DeleteOptions{})).To(Succeed())
		Eventually(known(ix, refOf(u))).Should(And(
			HaveField("Deleting", true),
			HaveField("Ready", live.Terminating),
			HaveField("Finalizers", []string{"example.com/stuck"}),
			HaveField("DeletionTimestamp", BeTemporally("~", time.Now(), time.Hour)),
		), "it is known to be deleted")
		n := told.count(owner)
		patch(ctx, configMaps, namespace, "stuck", "metadata: {finalizers: null}")
		Eventually(has(ix, refOf(u))).Should(BeFalse(), "it is gone")
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was told")
	})

	It("keeps an object that lost its label until it is seen again", func(ctx SpecContext) {
		ix, told := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		u := marked(namespace, configMap("a", "1"))
		first := apply(ctx, configMaps, u)
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is known")
		n := told.count(owner)

		unlabelled := patch(ctx, configMaps, namespace, "a", "metadata: {labels: {"+live.OwnerLabel+": null}}")
		Eventually(known(ix, refOf(u))).Should(And(
			HaveField("LabelLost", true),
			HaveField("UID", first.GetUID()),
			HaveField("ResourceVersion", unlabelled.GetResourceVersion()),
		), "it is known to have lost its label")
		Eventually(told.count).WithArguments(owner).Should(BeNumerically(">", n), "the owner was told")

		again := apply(ctx, configMaps, u)
		_, err := ix.Observe(again)
		Expect(err).NotTo(HaveOccurred())
		Expect(known(ix, refOf(u))()).To(And(HaveField("LabelLost", false), HaveField("ResourceVersion", again.GetResourceVersion())))

		changed := patch(ctx, configMaps, namespace, "a", "data: {key: x}")
		Eventually(known(ix, refOf(u))).Should(HaveField("ResourceVersion", changed.GetResourceVersion()), "it is watched again")
	})

	It("leaves out what others copied of our objects", func(ctx SpecContext) {
		slices := mapping("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", meta.RESTScopeNamespace)
		ix, told := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{deployments, replicaSets, services, slices})
		synced(ix, deployments, replicaSets, services, slices)

		// The labels of the pods go to the ReplicaSet, as do the Deployment's annotations.
		d := parse(deploymentYAML)
		template := d.Object["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)["labels"].(map[string]any)
		template[live.OwnerLabel] = installation(namespace)
		d = apply(ctx, deployments, marked(namespace, d))
		s := apply(ctx, services, marked(namespace, parse("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{port: 80}]}}")))

		Eventually(func(g Gomega) {
			list, err := resource(replicaSets, namespace).List(ctx, metav1.ListOptions{LabelSelector: live.OwnerLabel})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Items).To(HaveLen(1))
			g.Expect(list.Items[0].GetAnnotations()).To(HaveKeyWithValue(live.MarkAnnotation, d.GetAnnotations()[live.MarkAnnotation]))
			list, err = resource(slices, namespace).List(ctx, metav1.ListOptions{LabelSelector: live.OwnerLabel})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.Items).To(HaveLen(1))
		}).Should(Succeed(), "controllers make copies")
		Eventually(func() uint64 { return ix.Stats().Copies }).Should(BeNumerically(">=", 2), "the index saw the copies")
		// Each kind has a watch of its own: one may be behind the others.
		Eventually(has(ix, refOf(d))).Should(BeTrue(), "the Deployment is known")
		Eventually(has(ix, refOf(s))).Should(BeTrue(), "the Service is known")
		Eventually(told.count).WithArguments(owner).ShouldNot(BeZero(), "the owner was told")
		Expect(ix.Stats().Objects).To(Equal(2), "the Deployment and the Service")
		Expect(told.owners()).To(Equal(owner))
	})

	It("keeps an object whose mark was removed, and knows a copy of it for what it is", func(ctx SpecContext) {
		ix, _ := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		u := apply(ctx, configMaps, marked(namespace, configMap("a", "1")))
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is known")
		patch(ctx, configMaps, namespace, "a", "metadata: {annotations: {"+live.MarkAnnotation+": null}}")
		Eventually(known(ix, refOf(u))).Should(And(HaveField("Mark", live.Mark{}), HaveField("UID", u.GetUID())), "it is known to have no mark")

		renamed := u.DeepCopy()
		renamed.SetName("b")
		renamed.SetUID("")
		renamed.SetResourceVersion("")
		renamed.SetManagedFields(nil)
		renamed = applyAs(ctx, "other", configMaps, renamed)
		Eventually(func() uint64 { return ix.Stats().Copies }).Should(BeEquivalentTo(1), "the index saw the copy")
		Expect(has(ix, refOf(renamed))()).To(BeFalse())
	})

	It("does not take an object of the same name for the one that was deleted", func(ctx SpecContext) {
		ix, _ := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		u := marked(namespace, configMap("a", "1"))
		first := apply(ctx, configMaps, u)
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is known")

		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		theirs := configMap("a", "theirs")
		theirs.SetNamespace(namespace)
		applyAs(ctx, "other", configMaps, theirs)
		Eventually(has(ix, refOf(u))).Should(BeFalse(), "theirs is not ours")

		// They restore ours from a backup, label and mark included.
		Expect(resource(configMaps, namespace).Delete(ctx, "a", metav1.DeleteOptions{})).To(Succeed())
		second := applyAs(ctx, "other", configMaps, u)
		Expect(second.GetUID()).NotTo(Equal(first.GetUID()))
		Eventually(known(ix, refOf(u))).Should(HaveField("UID", second.GetUID()), "the uid tells them apart")
	})

	It("is silent about changes that do not matter", func(ctx SpecContext) {
		// Sorted last: of two that are told at once, this one is told second.
		const another = "~another"
		ix, told := run(plane.Config(), live.Options{Owner: installation(namespace)})
		ix.Use(owner, []*meta.RESTMapping{configMaps})
		u := apply(ctx, configMaps, marked(namespace, configMap("a", "1")))
		other := marked(namespace, configMap("b", "1"))
		other.SetAnnotations(map[string]string{live.MarkAnnotation: live.Mark{Owner: another, ID: refOf(other).ID()}.String()})
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is known")
		Eventually(told.count).WithArguments(owner).ShouldNot(BeZero(), "the owner was told")
		synced(ix, configMaps)
		apply(ctx, configMaps, other)
		Eventually(told.count).WithArguments(another).Should(Equal(1), "the other owner was told of its object")
		n := told.count(owner)

		theirs := patch(ctx, configMaps, namespace, "a", "metadata: {annotations: {heartbeat: x}}")
		Eventually(known(ix, refOf(u))).Should(HaveField("ResourceVersion", theirs.GetResourceVersion()), "the change is known")
		// What is told of later comes later.
		patch(ctx, configMaps, namespace, "b", "data: {key: x}")
		Eventually(told.count).WithArguments(another).Should(Equal(2), "the other owner was told of drift")
		Expect(told.count(owner)).To(Equal(n), "nobody was told of a heartbeat")
	})

	It("stops watching what nobody uses any more", func(ctx SpecContext) {
		ix, _ := run(plane.Config(), live.Options{Owner: installation(namespace), Grace: 40 * time.Millisecond})
		ix.Use("one", []*meta.RESTMapping{configMaps, secrets})
		ix.Use("two", []*meta.RESTMapping{configMaps})
		synced(ix, configMaps, secrets)
		u := apply(ctx, configMaps, marked(namespace, configMap("a", "1")))
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is known")
		ix.Use("one", nil)
		Eventually(reason(ix, secrets)).Should(Equal(live.NotWatched), "nobody uses Secrets")
		Expect(reason(ix, configMaps)()).To(BeEmpty())
		ix.Use("two", nil)
		Eventually(reason(ix, configMaps)).Should(Equal(live.NotWatched), "nobody uses ConfigMaps")
		Eventually(ix.Stats).Should(And(HaveField("Objects", 0), HaveField("Watches", 0)))
		ix.Use("two", []*meta.RESTMapping{configMaps})
		Eventually(has(ix, refOf(u))).Should(BeTrue(), "the object is known again")
	})

	It("believes the version that an object was applied in", func(ctx SpecContext) {
		v1 := mapping("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", meta.RESTScopeNamespace)
		v2 := mapping("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", meta.RESTScopeNamespace)
		ix, _ := run(plane.Config(), live.Options{Owner: installation(namespace), Grace: 40 * time.Millisecond})
		ix.Use(owner, []*meta.RESTMapping{v1, v2})
		synced(ix, v1)
		h2 := apply(ctx, v2, marked(namespace, parse(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: a}, spec: {maxReplicas: 2,
			scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`)))
		h1 := apply(ctx, v1, marked(namespace, parse(`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: b}, spec: {maxReplicas: 2, targetCPUUtilizationPercentage: 50,
			scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}}`)))
		for _, u := range []struct{ ref, version string }{{"a", "v2"}, {"b", "v1"}} {
			want, err := live.Project(h2)
			if u.version == "v1" {
				want, err = live.Project(h1)
			}
			Expect(err).NotTo(HaveOccurred())
			Eventually(known(ix, want.Ref)).Should(And(HaveField("Version", u.version), HaveField("Owned", want.Owned)), "%s is known in %s", u.ref, u.version)
		}
		lists := ix.Stats().Lists
		Expect(lists).To(BeNumerically(">=", 2), "one of each version")
		ix.Use(owner, []*meta.RESTMapping{v2})
		Eventually(known(ix, refOf(h1))).Should(HaveField("Version", "v2"), "the version that is still watched speaks for it")
		Eventually(func() uint64 { return ix.Stats().Lists }).Should(BeNumerically(">", lists), "it listed anew")
		synced(ix, v2)
	})
})
