package install_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
)

var _ = Describe("Objects with copies of our labels and annotations", func() {
	It("are not written, not counted, and not removed with the install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		elsewhere, err := plane.Namespace(ctx, "copies")
		Expect(err).NotTo(HaveOccurred())
		// so that the controller watches ReplicaSets
		lone := strings.Replace(deployment("lone", ""), "kind: Deployment", "kind: ReplicaSet", 1)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"), deployment("web", ""), lone)
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		web := aDeployment(ns, "web")
		Expect(get(ctx, web)).To(Succeed())

		mine := getConfigMap(ctx, ns, "a")
		meta := metav1.ObjectMeta{Labels: mine.Labels, Annotations: mine.Annotations}
		copies := []client.Object{foreignConfigMap(ctx, ns, "b", meta), foreignConfigMap(ctx, elsewhere, "a", meta)}
		set := &k8sappsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "copy", Labels: web.Labels,
			Annotations: web.Annotations},
			Spec: k8sappsv1.ReplicaSetSpec{Replicas: ptr.To[int32](0), Selector: web.Spec.Selector.DeepCopy(),
				Template: *web.Spec.Template.DeepCopy()}}
		set.Spec.Selector.MatchLabels, set.Spec.Template.Labels = map[string]string{"app": "copy"},
			map[string]string{"app": "copy"}
		Expect(plane.Client().Create(ctx, set)).To(Succeed())

		mark := auditMark(ctx)
		requestReconcile(ctx, in, "counted?")
		Expect(in.Status.Components[0].Objects).To(BeEquivalentTo(3))
		Expect(in.Status.Inventory.Entries).To(HaveLen(3))
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"), lone)
		atRevision(ctx, in, "main@sha1:2")
		Expect(absent(ctx, web)).To(BeTrue(), "the Deployment left the stack")
		deleteAndWait(ctx, in)
		for _, o := range copies {
			version := o.GetResourceVersion()
			Expect(get(ctx, o)).To(Succeed())
			Expect(o.GetResourceVersion()).To(Equal(version), "%s in %s was not written", o.GetName(), o.GetNamespace())
		}
		Expect(get(ctx, set)).To(Succeed())
		var names []string
		// A deletion that conflicts with a late status write is rejected and retried.
		for _, r := range writes(ctx, ns, mark).Without(cluster.Failed) {
			names = append(names, r.Verb+" "+r.Resource+" "+r.Namespace+"/"+r.Name)
		}
		Expect(names).To(ConsistOf("patch configmaps "+ns+"/a", "delete deployments "+ns+"/web", "delete configmaps "+
			ns+"/a", "delete replicasets "+ns+"/lone"))
	})
})
