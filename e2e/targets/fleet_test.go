package targets_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/harness"
)

// createClusters creates KsctlClusters, all of the other control plane, with labels.
func createClusters(ctx context.Context, ns string, names ...string) {
	GinkgoHelper()
	var secret corev1.Secret
	if err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "access"}, &secret); err != nil {
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "access"},
			StringData: map[string]string{"value": kubeconfig(remote)}})
	}
	for _, name := range names {
		c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name,
			Labels: map[string]string{"stage": "prod", "zone": "zone-" + name}},
			Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "access"},
				ServiceAccountName: harness.Deployer}}
		create(ctx, c)
	}
}

// publishChart publishes a stack of a chart, whose ConfigMap has the name of the cluster.
func publishChart(ctx context.Context, ns, revision, value, guard string) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, "src", revision, harness.SourceTree("spec:\n  version: 1.0.0\n  components:\n  - "+
		"{name: main, helm: {chart: ./chart}}\n", map[string]string{
		"chart/Chart.yaml":  "apiVersion: v2\nname: main\nversion: 1.0.0\n",
		"chart/values.yaml": "name: \"\"\nzone: \"\"\n",
		"chart/templates/a.yaml": guard + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: on-{{ .Values.name " +
			"}}}\ndata: {word: " + value + "-{{ .Values.zone }}}\n",
	}))).To(Succeed())
}

// clusterStates returns a function for Eventually with the states of the clusters of an install.
func clusterStates(ctx context.Context, in *appsv1.KsctlInstall) func() (string, error) {
	return func() (string, error) {
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
		out := ""
		for _, c := range in.Status.Clusters {
			out += fmt.Sprintf("%s %s %s\n", c.Name, c.State, c.Revision)
		}
		return out, err
	}
}

var _ = Describe("An install for many clusters", func() {
	It("rolls out to one cluster after the other, stops at a failure, and follows the labels", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createClusters(ctx, here, "a", "b", "c")
		publishChart(ctx, here, "main@sha1:1", "one", "")
		in := harness.NewInstall(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterSelector = &appsv1.ClusterSelector{
			LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "prod"}},
			MaxConcurrent: ptr.To[int32](1)}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main",
			Set: []appsv1.ClusterValue{
				{Path: "name", Expr: "metadata.name"}, {Path: "zone", Expr: "metadata.labels['zone']"}}}}
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: Applied revision main@sha1:1: 3 of 3 clusters are ready"))
		Expect(configMapValues(ctx, remote.Client(), there)()).
			To(Equal(map[string]string{"on-a": "one-zone-a", "on-b": "one-zone-b", "on-c": "one-zone-c"}))

		By("a revision that fails on the second cluster")
		publishChart(ctx, here, "main@sha1:2", "two",
			"{{ if eq .Values.name \"b\" }}{{ fail \"not here\" }}{{ end }}\n")
		Eventually(ctx, clusterStates(ctx, in), soon).
			Should(Equal("a Ready main@sha1:2\nb Failed main@sha1:1\nc Waiting main@sha1:1\n"))
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(And(HavePrefix("False ClustersFailed: 1 of 3 clusters are ready; 1 failed: b; 1 waiting: c: "),
				ContainSubstring("not here")))
		Expect(configMapValues(ctx, remote.Client(), there)()).
			To(Equal(map[string]string{"on-a": "two-zone-a", "on-b": "one-zone-b", "on-c": "one-zone-c"}))
		patch(ctx, remote.Client(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "on-c"}},
			`{"data":{"word":"mine"}}`)
		Eventually(ctx, configMapValues(ctx, remote.Client(), there), soon).
			Should(HaveKeyWithValue("on-c", "one-zone-c"), "drift on a waiting cluster is corrected")

		By("a revision that fixes the failure")
		publishChart(ctx, here, "main@sha1:3", "three", "")
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: Applied revision main@sha1:3: 3 of 3 clusters are ready"))
		Expect(configMapValues(ctx, remote.Client(), there)()).
			To(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-zone-b", "on-c": "three-zone-c"}))

		By("changing the install of a cluster by hand, and the value of a label")
		patch(ctx, h.ControlPlane.Client(),
			&appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "app-a"}},
			`{"spec":{"valuesFrom":null}}`)
		patch(ctx, h.ControlPlane.Client(),
			&clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "b"}},
			`{"metadata":{"labels":{"zone":"other"}}}`)
		Eventually(ctx, configMapValues(ctx, remote.Client(), there), soon).
			Should(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-other", "on-c": "three-zone-c"}))

		By("adding a cluster, and removing the label from another")
		createClusters(ctx, here, "d")
		patch(ctx, h.ControlPlane.Client(),
			&clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "c"}},
			`{"metadata":{"labels":{"stage":"test"}}}`)
		Eventually(ctx, configMapValues(ctx, remote.Client(), there), soon).
			Should(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-other", "on-d": "three-zone-d"}))
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))

		By("a selector that matches no cluster")
		patch(ctx, h.ControlPlane.Client(), in, `{"spec":{"clusterSelector":{"matchLabels":{"stage":"typo"}}}}`)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(HavePrefix("False DeletionsHeld: spec.clusterSelector excludes " +
				"more than half of the clusters with the stack"))
		Expect(configMapValues(ctx, remote.Client(), there)()).To(HaveLen(3))
		patch(ctx, h.ControlPlane.Client(), in, `{"spec":{"clusterSelector":{"matchLabels":{"stage":"prod"}}}}`)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))

		By("deleting a cluster, and then the install")
		d := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "d"}}
		Expect(h.ControlPlane.Client().Delete(ctx, d)).To(Succeed())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), d), soon).Should(BeTrue())
		Expect(configMapValues(ctx, remote.Client(), there)()).
			To(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-other"}))
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
		Expect(configMapValues(ctx, remote.Client(), there)()).To(BeEmpty())
		var left appsv1.KsctlInstallList
		Expect(h.ControlPlane.Client().List(ctx, &left, client.InNamespace(here))).To(Succeed())
		Expect(left.Items).To(BeEmpty())
	})

	It("rolls out first to the clusters that wait longest and to a failed one, which goes last when it "+
		"fails again", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createClusters(ctx, here, "a", "b", "c", "d")
		in := harness.NewInstall(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterSelector = &appsv1.ClusterSelector{MaxConcurrent: ptr.To[int32](1)}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main",
			Set: []appsv1.ClusterValue{{Path: "name", Expr: "metadata.name"}}}}
		// Each revision except the first fails on one cluster.
		commit := func(n int, broken string) {
			GinkgoHelper()
			publishChart(ctx, here, fmt.Sprint("r", n), fmt.Sprint("word", n),
				fmt.Sprintf("{{ if eq .Values.name %q }}{{ fail \"not here\" }}{{ end }}\n", broken))
		}
		commit(1, "")
		create(ctx, in)
		Eventually(ctx, clusterStates(ctx, in), soon).Should(Equal("a Ready r1\nb Ready r1\nc Ready r1\nd Ready r1\n"))
		commit(2, "b")
		Eventually(ctx, clusterStates(ctx, in), soon).
			Should(Equal("a Ready r2\nb Failed r1\nc Waiting r1\nd Waiting r1\n"), "by name")
		commit(3, "d")
		Eventually(ctx, clusterStates(ctx, in), soon).
			Should(Equal("a Waiting r2\nb Ready r3\nc Ready r3\nd Failed r1\n"),
				"b has failed, and a has had the last rollout")
		commit(4, "d")
		Eventually(ctx, clusterStates(ctx, in), soon).
			Should(Equal("a Waiting r2\nb Waiting r3\nc Waiting r3\nd Failed r1\n"), "d has failed")
		commit(5, "d")
		Eventually(ctx, clusterStates(ctx, in), soon).Should(Equal("a Ready r5\nb Ready r5\nc Ready r5\nd Failed r1\n"),
			"d has failed again")
		commit(6, "")
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: Applied revision r6: 4 of 4 clusters are ready"))
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
	})

	It("corrects drift on a waiting cluster after a restart, and reports when that is "+
		"impossible", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createClusters(ctx, here, "a", "b")
		publishChart(ctx, here, "r1", "one", "# of "+here+" alone: what others have is in the cache, too\n")
		var src appsv1.KsctlSource
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: here, Name: "src"}, &src)).To(Succeed())
		first := *src.Status.Artifact
		in := harness.NewInstall(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterSelector = &appsv1.ClusterSelector{MaxConcurrent: ptr.To[int32](1)}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main",
			Set: []appsv1.ClusterValue{{Path: "name", Expr: "metadata.name"}}}}
		create(ctx, in)
		Eventually(ctx, clusterStates(ctx, in), soon).Should(Equal("a Ready r1\nb Ready r1\n"))
		publishChart(ctx, here, "r2", "two", "{{ if eq .Values.name \"a\" }}{{ fail \"not here\" }}{{ end }}\n")
		Eventually(ctx, clusterStates(ctx, in), soon).Should(Equal("a Failed r1\nb Waiting r1\n"))
		waits := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "app-b"}}
		Eventually(ctx, readySummary(ctx, waits), soon).
			Should(HavePrefix("True ReconciliationSucceeded: Applied revision r1: "))
		Expect(waits.Status.Artifact).
			To(Equal(&appsv1.TakenArtifact{Revision: "r1", Digest: first.Digest, URL: first.URL}))
		drift := func(value string) func() {
			return func() {
				GinkgoHelper()
				patch(ctx, remote.Client(),
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "on-b"}},
					fmt.Sprintf(`{"data":{"word":%q}}`, value))
			}
		}

		By("restarting the controller after a change on the cluster")
		restart(drift("mine"))
		Eventually(ctx, configMapValues(ctx, remote.Client(), there), soon).Should(HaveKeyWithValue("on-b", "one-"))
		drift("again")()
		Eventually(ctx, configMapValues(ctx, remote.Client(), there), soon).Should(HaveKeyWithValue("on-b", "one-"))
		Eventually(ctx, clusterStates(ctx, in), soon).Should(Equal("a Failed r1\nb Waiting r1\n"))
		Eventually(ctx, readySummary(ctx, waits), soon).
			Should(HavePrefix("True ReconciliationSucceeded: Applied revision r1: "))

		By("restarting the controller when the applied artifact is not served anymore")
		restart(func() {
			h.ArtifactServer.Replace(first.Path, nil)
			drift("kept")()
		})
		Eventually(ctx, readySummary(ctx, waits), soon).Should(Equal("Unknown AwaitingRollout: awaiting the rollout " +
			"of revision r2; until then nothing is changed and drift is not corrected: " +
			"the previously released revision r1 is no longer served: " + first.URL +
			": the server answered 404 Not Found"))
		Consistently(ctx, configMapValues(ctx, remote.Client(), there), 2*time.Second).
			Should(HaveKeyWithValue("on-b", "kept"))
		Eventually(ctx, clusterStates(ctx, in), soon).Should(Equal("a Failed r1\nb Waiting r1\n"))

		By("a revision that succeeds on all clusters")
		publishChart(ctx, here, "r3", "three", "")
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: Applied revision r3: 2 of 2 clusters are ready"))
		Expect(configMapValues(ctx, remote.Client(), there)()).
			To(Equal(map[string]string{"on-a": "three-", "on-b": "three-"}))
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
	})

	It("applies its final deletionPolicy to all clusters, and abandons all of them", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createClusters(ctx, here, "a", "b", "c")
		publishChart(ctx, here, "main@sha1:1", "one", "")
		installed := func(name string) *appsv1.KsctlInstall {
			in := harness.NewInstall(here, name)
			in.Spec.TargetNamespace = there
			in.Spec.ClusterSelector = &appsv1.ClusterSelector{MaxConcurrent: ptr.To[int32](1)}
			in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main",
				Set: []appsv1.ClusterValue{{Path: "name", Expr: "'" + name + "-' + metadata.name"}}}}
			create(ctx, in)
			Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
			return in
		}
		kept, abandoned := installed("kept"), installed("abandoned")
		all := map[string]string{"on-kept-a": "one-", "on-kept-b": "one-", "on-kept-c": "one-",
			"on-abandoned-a": "one-", "on-abandoned-b": "one-", "on-abandoned-c": "one-"}
		Expect(configMapValues(ctx, remote.Client(), there)()).To(Equal(all))
		patch(ctx, h.ControlPlane.Client(), kept, `{"spec":{"deletionPolicy":"Orphan"}}`)
		Expect(h.ControlPlane.Client().Delete(ctx, kept)).To(Succeed())
		patch(ctx, h.ControlPlane.Client(), abandoned,
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, abandoned.UID))
		Expect(h.ControlPlane.Client().Delete(ctx, abandoned)).To(Succeed())
		for _, in := range []*appsv1.KsctlInstall{kept, abandoned} {
			Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
		}
		var left appsv1.KsctlInstallList
		Expect(h.ControlPlane.Client().List(ctx, &left, client.InNamespace(here))).To(Succeed())
		Expect(left.Items).To(BeEmpty())
		Expect(configMapValues(ctx, remote.Client(), there)()).To(Equal(all))
	})

	It("can't be changed from or to an install on a single cluster while objects are installed", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createClusters(ctx, here, "a")
		publishChart(ctx, here, "main@sha1:1", "one", "")
		in := harness.NewInstall(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterRef = &appsv1.ClusterReference{Name: "a"}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main",
			Set: []appsv1.ClusterValue{{Path: "name", Expr: "metadata.name"}}}}
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		patch(ctx, h.ControlPlane.Client(), in, `{"spec":{"clusterRef":null,"clusterSelector":{}}}`)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(HavePrefix("False ClusterChanged: spec.clusterSelector is set, but objects are installed on " +
				"KsctlCluster " + here + "/a"))
		patch(ctx, h.ControlPlane.Client(), in, `{"spec":{"clusterRef":{"name":"a"},"clusterSelector":null}}`)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "rm"},
			Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: "many"}}}
		many := harness.NewInstall(here, "many")
		many.Spec.ClusterSelector = &appsv1.ClusterSelector{
			LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "none"}}}
		create(ctx, many)
		Eventually(ctx, readySummary(ctx, many), soon).
			Should(Equal("Unknown NoClusters: spec.clusterSelector selects no KsctlCluster in namespace " + here))
		create(ctx, rm)
		Eventually(ctx, readySummary(ctx, rm), soon).
			Should(HavePrefix("False FormNotSupported: KsctlInstall many is for many clusters"))
		for _, o := range []client.Object{rm, many, in} {
			Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
			Eventually(ctx, absent(ctx, h.ControlPlane.Client(), o), soon).Should(BeTrue())
		}
		Expect(configMapValues(ctx, remote.Client(), there)()).To(BeEmpty())
	})
})
