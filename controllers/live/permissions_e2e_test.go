package live_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/ksctl/gitops/controllers/live"
)

var clusterRoles = mapping("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", meta.RESTScopeRoot)

var _ = Describe("An index with changing permissions", func() {
	It("reports Forbidden without a permission and recovers with it", func(ctx SpecContext) {
		namespace, err := plane.Namespace(ctx, "rights")
		Expect(err).NotTo(HaveOccurred())
		owner := ownerKey(namespace)
		allow := func(ctx context.Context, verbs string) {
			GinkgoHelper()
			Expect(plane.ApplyYAML(ctx, []byte(fmt.Sprintf(`
apiVersion: v1
kind: ServiceAccount
metadata: {name: index, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [%[2]s]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: ServiceAccount, name: index, namespace: %[1]s}]
`, namespace, verbs)))).To(Succeed())
		}
		allow(ctx, "create")
		DeferCleanup(func(ctx SpecContext) {
			Expect(resource(clusterRoles, "").Delete(ctx, namespace, metav1.DeleteOptions{})).To(Succeed())
		})
		cfg, err := plane.ConfigFor(ctx, namespace, "index")
		Expect(err).NotTo(HaveOccurred())
		theirs, err := dynamic.NewForConfig(fast(rest.CopyConfig(cfg)))
		Expect(err).NotTo(HaveOccurred())
		cfg, w := withFaultProxy(cfg)
		u := apply(ctx, configMaps, marked(namespace, configMap("a", "1")))

		ix, notified := startIndex(cfg, live.Options{OwnerID: installation(namespace)})
		ix.SetOwnerKinds(owner, []*meta.RESTMapping{configMaps})
		Eventually(reason(ix, configMaps)).Should(Equal(live.Forbidden), "list is forbidden")
		Eventually(notified.count).WithArguments(owner).Should(Equal(1), "the owner was notified")

		By("granting list and watch, but not get")
		allow(ctx, "list, watch")
		expectSynced(ix, configMaps)
		Expect(has(ix, refOf(u))()).To(BeTrue())
		Eventually(notified.count).WithArguments(owner).Should(BeNumerically(">=", 2), "the owner was notified")
		patch(ctx, configMaps, namespace, "a", "metadata: {labels: {"+live.OwnerLabel+": null}}")
		Eventually(reason(ix, configMaps)).Should(Equal(live.Stale), "the confirming GET is forbidden")
		Expect(ix.Synced(configMaps.GroupVersionKind.GroupKind())).To(MatchError(ContainSubstring("forbidden")))

		By("granting all verbs")
		allow(ctx, "list, watch, get")
		expectSynced(ix, configMaps)
		Expect(getObject(ix, refOf(u))()).To(HaveField("LabelLost", true))

		By("revoking all verbs while the watch breaks")
		allow(ctx, "create")
		// The authorizer of the API server updates with a delay. A watch that starts before
		// the update keeps running.
		Eventually(func() error {
			_, err := theirs.Resource(configMaps.Resource).List(ctx, metav1.ListOptions{})
			return err
		}).Should(MatchError(apierrors.IsForbidden, "IsForbidden"), "the API server enforces the change")
		w.cutWatches(false)
		Eventually(reason(ix, configMaps)).Should(Equal(live.Forbidden), "watch is forbidden")
		Expect(has(ix, refOf(u))()).To(BeTrue(), "stored objects stay")

		By("granting all verbs again")
		allow(ctx, "list, watch, get")
		ix.Wake(configMaps.GroupVersionKind.GroupKind())
		expectSynced(ix, configMaps)
		late := apply(ctx, configMaps, marked(namespace, configMap("late", "1")))
		Eventually(has(ix, refOf(late))).Should(BeTrue(), "the new object is indexed")
	})
})
