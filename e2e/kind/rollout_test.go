package kind_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

// kindCondition returns the condition Ready of a KsctlKind as "status reason: message".
func kindCondition(ctx context.Context, k *appsv1.KsctlKind) (string, error) {
	err := get(ctx, k)
	c := ptr.Deref(apimeta.FindStatusCondition(k.Status.Conditions, appsv1.ReadyCondition), metav1.Condition{})
	return string(c.Status) + " " + c.Reason + ": " + c.Message, err
}

// kindBecomes waits until the condition Ready of a KsctlKind has a prefix.
func kindBecomes(ctx context.Context, k *appsv1.KsctlKind, prefix string) {
	GinkgoHelper()
	Eventually(ctx, kindCondition).WithArguments(k).WithTimeout(soon).Should(HavePrefix(prefix))
}

// release returns the release and the greeting in the ConfigMap of an object.
func release(ctx context.Context, ns, name string) string {
	GinkgoHelper()
	m := configMap(ns, name+"-web")
	Expect(get(ctx, m)).To(Succeed())
	return m.Data["release"] + " " + m.Data["greeting"]
}

// keptRevisions returns the number of revisions that are kept for a namespace's stack.
func keptRevisions(ctx context.Context, k *appsv1.KsctlKind) (n int, _ error) {
	var secrets corev1.SecretList
	err := plane.Client().List(ctx, &secrets, client.InNamespace(harness.SystemNamespace))
	for i := range secrets.Items {
		if secrets.Items[i].Annotations[appsv1.KindAnnotation] == k.Name {
			n++
		}
	}
	return n, err
}

var _ = Describe("A new revision of a published stack", func() {
	It("is rolled out step by step, and stops at a failure", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		publishShop(ctx, platform, "Step", "main@sha1:1", "RELEASE", "1")
		k := newKind(ctx, platform, "Step", func(k *appsv1.KsctlKind) {
			k.Spec.Rollout = &appsv1.KindRollout{MaxConcurrent: ptr.To[int32](1)}
		})
		kindReady(ctx, k, "main@sha1:1")
		shops := map[string]*unstructured.Unstructured{}
		for name, port := range map[string]int64{"a": 80, "b": 600, "c": 80, "e": 70000} {
			shops[name] = newShop(ctx, "Step", tenant, name, map[string]any{"greeting": name, "port": port})
		}
		for _, name := range []string{"a", "b", "c"} {
			shopBecomes(ctx, shops[name], "True ")
		}
		shopBecomes(ctx, shops["e"], "False ") // the port of its Service is invalid

		By("publishing a revision in which the port of b is invalid, too")
		higher := []string{"value: stack.port", "value: stack.port + 65000"}
		publishShop(ctx, platform, "Step", "main@sha1:2", append(higher, "RELEASE", "2")...)
		kindBecomes(ctx, k, "False ObjectsFailed: rollout of revision main@sha1:2: 1 of 4 objects are updated; "+
			"1 failed: "+tenant+"/b")
		Expect(k.Status.Artifact.Revision).To(Equal("main@sha1:1"))
		Expect(release(ctx, tenant, "a")).To(Equal("2 a"))
		Expect(release(ctx, tenant, "c")).To(Equal("1 c"))

		By("changing and creating objects that the rollout has not reached")
		change(ctx, shops["c"], `{"spec": {"greeting": "changed"}}`)
		shopBecomes(ctx, shops["c"], "True ReconciliationSucceeded: Applied revision main@sha1:1")
		Expect(release(ctx, tenant, "c")).To(Equal("1 changed"))
		shops["d"] = newShop(ctx, "Step", tenant, "d", map[string]any{"greeting": "d"})
		shopBecomes(ctx, shops["d"], "True ReconciliationSucceeded: Applied revision main@sha1:1")

		By("restarting the controller, while the source has another revision that fails")
		Expect(controller.Stop()).To(Succeed())
		publishShop(ctx, platform, "Step", "main@sha1:3", append(higher, "RELEASE", "3")...)
		m := configMap(tenant, "c-web")
		remove(ctx, m)
		controller.Start()
		kindBecomes(ctx, k, "False ObjectsFailed: rollout of revision main@sha1:3: ")
		Expect(k.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("failed: "+tenant+"/b"))))
		Eventually(ctx, get).WithArguments(m).WithTimeout(soon).Should(Succeed(), "it is put right at its revision")
		Expect(release(ctx, tenant, "c")).To(Equal("1 changed"))
		Expect(release(ctx, tenant, "a")).To(Equal("2 a"))
		Expect(keptRevisions(ctx, k)).To(Equal(3))

		By("publishing a revision that corrects it")
		publishShop(ctx, platform, "Step", "main@sha1:4", "RELEASE", "4")
		kindReady(ctx, k, "main@sha1:4")
		for _, name := range []string{"a", "b", "d"} {
			Expect(release(ctx, tenant, name)).To(Equal("4 " + name))
		}
		Expect(release(ctx, tenant, "c")).To(Equal("4 changed"))
		shopBecomes(ctx, shops["e"], "False ")
		Expect(k.Status.Objects.Updated).To(BeEquivalentTo(4))
		Eventually(ctx, keptRevisions).WithArguments(k).WithTimeout(soon).Should(Equal(1))

		By("moving the source on without a change of the stack")
		mark, err := plane.AuditMark(ctx)
		Expect(err).NotTo(HaveOccurred())
		publishShop(ctx, platform, "Step", "main@sha1:5", "RELEASE", "4")
		kindReady(ctx, k, "main@sha1:5")
		requests, err := plane.AuditSince(ctx, mark)
		Expect(err).NotTo(HaveOccurred())
		Expect(requests.Where(cluster.Verb("create", "update", "patch", "delete"), func(r cluster.Request) bool {
			return r.Namespace == tenant && !strings.HasPrefix(r.Name, "e")
		})).To(BeEmpty(), "no object is touched")

		By("removing all")
		remove(ctx, k)
		change(ctx, k, `{"spec": {"deletionPolicy": "Delete"}}`)
		gone(ctx, k)
		Expect(keptRevisions(ctx, k)).To(BeZero())
	})

	It("is refused if existing objects do not fit its schema", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		publishShop(ctx, platform, "Fit", "main@sha1:1")
		k := newKind(ctx, platform, "Fit")
		kindReady(ctx, k, "main@sha1:1")
		a := newShop(ctx, "Fit", tenant, "a", map[string]any{"greeting": "x", "namespace": tenant})
		shopBecomes(ctx, a, "True ")

		By("a field that is gone, and another one that is stricter")
		publishShop(ctx, platform, "Fit", "main@sha1:2", "        namespace: {type: string}\n", "",
			"      targetNamespace: {expr: \"self.spec.?namespace\"}\n", "", "greeting: {type: string}\n        port",
			"greeting: {type: string, minLength: 2}\n        port")
		kindBecomes(ctx, k, "False SchemaChangeRefused: 1 objects do not fit the changed spec.serves.schema: "+tenant+
			"/a (spec.greeting: invalid value, spec.namespace would be lost)")
		change(ctx, a, `{"spec": {"greeting": "y"}}`)
		shopBecomes(ctx, a, "True ReconciliationSucceeded: Applied revision main@sha1:1")

		By("an object that fits after its change")
		change(ctx, a, `{"spec": {"greeting": "long", "namespace": null}}`)
		kindReady(ctx, k, "main@sha1:2")
		shopBecomes(ctx, a, "True ReconciliationSucceeded: Applied revision main@sha1:2")

		By("another stored version")
		publishShop(ctx, platform, "Fit", "main@sha1:3", "versions: [{name: v1alpha1}]", "versions: [{name: v1}]")
		kindReady(ctx, k, "main@sha1:3")
		d := &apiextensionsv1.CustomResourceDefinition{}
		d.Name = "fits." + group
		Eventually(ctx, func() ([]string, error) {
			err := get(ctx, d)
			var versions []string
			for _, v := range d.Spec.Versions {
				versions = append(versions, v.Name)
			}
			return append(versions, d.Status.StoredVersions...), err
		}, soon).Should(Equal([]string{"v1", "v1"}), "the earlier version has left the list")
		a.SetAPIVersion(group + "/v1")
		change(ctx, a, `{"spec": {"greeting": "again"}}`)
		shopBecomes(ctx, a, "True ReconciliationSucceeded: Applied revision main@sha1:3")
	})
})
