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

// fleetOf makes KsctlClusters that all lead to the other control plane, with a label.
func fleetOf(ctx context.Context, ns string, names ...string) {
	GinkgoHelper()
	var secret corev1.Secret
	if err := h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "access"}, &secret); err != nil {
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "access"}, StringData: map[string]string{"value": kubeconfig(remote)}})
	}
	for _, name := range names {
		c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"stage": "prod", "zone": "zone-" + name}},
			Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "access"}, ServiceAccountName: harness.Deployer}}
		create(ctx, c)
	}
}

// charted publishes a stack of a chart, whose ConfigMap has the cluster's name.
func charted(ctx context.Context, ns, revision, word, guard string) {
	GinkgoHelper()
	Expect(h.Publish(ctx, ns, "src", revision, harness.Tree("spec:\n  version: 1.0.0\n  components:\n  - {name: main, helm: {chart: ./chart}}\n", map[string]string{
		"chart/Chart.yaml":       "apiVersion: v2\nname: main\nversion: 1.0.0\n",
		"chart/values.yaml":      "name: \"\"\nzone: \"\"\n",
		"chart/templates/a.yaml": guard + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: on-{{ .Values.name }}}\ndata: {word: " + word + "-{{ .Values.zone }}}\n",
	}))).To(Succeed())
}

// states are those of the clusters of an install.
func states(ctx context.Context, in *appsv1.KsctlInstall) func() (string, error) {
	return func() (string, error) {
		err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
		out := ""
		for _, c := range in.Status.Clusters {
			out += fmt.Sprintf("%s %s %s\n", c.Name, c.State, c.Revision)
		}
		return out, err
	}
}

var _ = Describe("An install for many clusters", func() {
	It("goes from one to the next, stops where it fails, and follows the labels", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		fleetOf(ctx, here, "a", "b", "c")
		charted(ctx, here, "main@sha1:1", "one", "")
		in := harness.Install(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterSelector = &appsv1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "prod"}}, MaxConcurrent: ptr.To[int32](1)}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main", Set: []appsv1.ClusterValue{
			{Path: "name", Expr: "metadata.name"}, {Path: "zone", Expr: "metadata.labels['zone']"}}}}
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: Applied revision main@sha1:1: 3 of 3 clusters are ready"))
		Expect(words(ctx, remote.Client(), there)()).To(Equal(map[string]string{"on-a": "one-zone-a", "on-b": "one-zone-b", "on-c": "one-zone-c"}))

		By("a commit that the second of them can't take in")
		charted(ctx, here, "main@sha1:2", "two", "{{ if eq .Values.name \"b\" }}{{ fail \"not here\" }}{{ end }}\n")
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Ready main@sha1:2\nb Failed main@sha1:1\nc Waiting main@sha1:1\n"))
		Eventually(ctx, stands(ctx, in), soon).Should(And(HavePrefix("False ClustersFailed: 1 of 3 clusters are ready; 1 failed: b; 1 wait for their turn: c: "), ContainSubstring("not here")))
		Expect(words(ctx, remote.Client(), there)()).To(Equal(map[string]string{"on-a": "two-zone-a", "on-b": "one-zone-b", "on-c": "one-zone-c"}))
		patch(ctx, remote.Client(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "on-c"}}, `{"data":{"word":"mine"}}`)
		Eventually(ctx, words(ctx, remote.Client(), there), soon).Should(HaveKeyWithValue("on-c", "one-zone-c"), "who waits is kept as it is")

		By("a commit that mends it")
		charted(ctx, here, "main@sha1:3", "three", "")
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: Applied revision main@sha1:3: 3 of 3 clusters are ready"))
		Expect(words(ctx, remote.Client(), there)()).To(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-zone-b", "on-c": "three-zone-c"}))

		By("changing an install of a cluster by hand, and the value of a label")
		patch(ctx, h.Plane.Client(), &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "app-a"}}, `{"spec":{"valuesFrom":null}}`)
		patch(ctx, h.Plane.Client(), &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "b"}}, `{"metadata":{"labels":{"zone":"other"}}}`)
		Eventually(ctx, words(ctx, remote.Client(), there), soon).Should(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-other", "on-c": "three-zone-c"}))

		By("another cluster, and one that has the label no more")
		fleetOf(ctx, here, "d")
		patch(ctx, h.Plane.Client(), &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "c"}}, `{"metadata":{"labels":{"stage":"test"}}}`)
		Eventually(ctx, words(ctx, remote.Client(), there), soon).Should(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-other", "on-d": "three-zone-d"}))
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))

		By("a selector that picks none of them any more")
		patch(ctx, h.Plane.Client(), in, `{"spec":{"clusterSelector":{"matchLabels":{"stage":"typo"}}}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False DeletionsHeld: spec.clusterSelector picks much less than before"))
		Expect(words(ctx, remote.Client(), there)()).To(HaveLen(3))
		patch(ctx, h.Plane.Client(), in, `{"spec":{"clusterSelector":{"matchLabels":{"stage":"prod"}}}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))

		By("deleting a cluster, and then all of it")
		d := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "d"}}
		Expect(h.Plane.Client().Delete(ctx, d)).To(Succeed())
		Eventually(ctx, absent(ctx, h.Plane.Client(), d), soon).Should(BeTrue())
		Expect(words(ctx, remote.Client(), there)()).To(Equal(map[string]string{"on-a": "three-zone-a", "on-b": "three-other"}))
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
		Expect(words(ctx, remote.Client(), there)()).To(BeEmpty())
		var left appsv1.KsctlInstallList
		Expect(h.Plane.Client().List(ctx, &left, client.InNamespace(here))).To(Succeed())
		Expect(left.Items).To(BeEmpty())
	})

	It("goes first to those that wait longest, and to one that has failed, which waits for its turn when it fails again", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		fleetOf(ctx, here, "a", "b", "c", "d")
		in := harness.Install(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterSelector = &appsv1.ClusterSelector{MaxConcurrent: ptr.To[int32](1)}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main", Set: []appsv1.ClusterValue{{Path: "name", Expr: "metadata.name"}}}}
		// Each commit but the first ends at a cluster that can't take it in.
		commit := func(n int, broken string) {
			GinkgoHelper()
			charted(ctx, here, fmt.Sprint("r", n), fmt.Sprint("word", n), fmt.Sprintf("{{ if eq .Values.name %q }}{{ fail \"not here\" }}{{ end }}\n", broken))
		}
		commit(1, "")
		create(ctx, in)
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Ready r1\nb Ready r1\nc Ready r1\nd Ready r1\n"))
		commit(2, "b")
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Ready r2\nb Failed r1\nc Waiting r1\nd Waiting r1\n"), "by name")
		commit(3, "d")
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Waiting r2\nb Ready r3\nc Ready r3\nd Failed r1\n"), "b has failed, and a has had its turn")
		commit(4, "d")
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Waiting r2\nb Waiting r3\nc Waiting r3\nd Failed r1\n"), "d has failed")
		commit(5, "d")
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Ready r5\nb Ready r5\nc Ready r5\nd Failed r1\n"), "d has failed again")
		commit(6, "")
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: Applied revision r6: 4 of 4 clusters are ready"))
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
	})

	It("keeps a cluster that waits as it is after a start, and says so where it can't", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		fleetOf(ctx, here, "a", "b")
		charted(ctx, here, "r1", "one", "# of "+here+" alone: what others have is in the cache, too\n")
		var src appsv1.KsctlSource
		Expect(h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: here, Name: "src"}, &src)).To(Succeed())
		first := *src.Status.Artifact
		in := harness.Install(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterSelector = &appsv1.ClusterSelector{MaxConcurrent: ptr.To[int32](1)}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main", Set: []appsv1.ClusterValue{{Path: "name", Expr: "metadata.name"}}}}
		create(ctx, in)
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Ready r1\nb Ready r1\n"))
		charted(ctx, here, "r2", "two", "{{ if eq .Values.name \"a\" }}{{ fail \"not here\" }}{{ end }}\n")
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Failed r1\nb Waiting r1\n"))
		waits := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "app-b"}}
		Eventually(ctx, stands(ctx, waits), soon).Should(HavePrefix("True ReconciliationSucceeded: Applied revision r1: "))
		Expect(waits.Status.Artifact).To(Equal(&appsv1.TakenArtifact{Revision: "r1", Digest: first.Digest, URL: first.URL}))
		drift := func(word string) func() {
			return func() {
				GinkgoHelper()
				patch(ctx, remote.Client(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "on-b"}}, fmt.Sprintf(`{"data":{"word":%q}}`, word))
			}
		}

		By("starting the controller, after something was changed")
		restart(drift("mine"))
		Eventually(ctx, words(ctx, remote.Client(), there), soon).Should(HaveKeyWithValue("on-b", "one-"))
		drift("again")()
		Eventually(ctx, words(ctx, remote.Client(), there), soon).Should(HaveKeyWithValue("on-b", "one-"))
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Failed r1\nb Waiting r1\n"))
		Eventually(ctx, stands(ctx, waits), soon).Should(HavePrefix("True ReconciliationSucceeded: Applied revision r1: "))

		By("starting it where what the cluster has is not served any more")
		restart(func() {
			h.Server.Replace(first.Path, nil)
			drift("kept")()
		})
		Eventually(ctx, stands(ctx, waits), soon).Should(Equal("Unknown WaitsForTurn: waits for its turn to take in revision r2, and nothing is changed or put right until then: " +
			"revision r1, which it took in last, is not served any more: " + first.URL + ": the server answered 404 Not Found"))
		Consistently(ctx, words(ctx, remote.Client(), there), 2*time.Second).Should(HaveKeyWithValue("on-b", "kept"))
		Eventually(ctx, states(ctx, in), soon).Should(Equal("a Failed r1\nb Waiting r1\n"))

		By("a commit that all of them can take in")
		charted(ctx, here, "r3", "three", "")
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: Applied revision r3: 2 of 2 clusters are ready"))
		Expect(words(ctx, remote.Client(), there)()).To(Equal(map[string]string{"on-a": "three-", "on-b": "three-"}))
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
	})

	It("clears clusters as it says at the end, also those that were not told yet, and abandons all of them", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		fleetOf(ctx, here, "a", "b", "c")
		charted(ctx, here, "main@sha1:1", "one", "")
		installed := func(name string) *appsv1.KsctlInstall {
			in := harness.Install(here, name)
			in.Spec.TargetNamespace = there
			in.Spec.ClusterSelector = &appsv1.ClusterSelector{MaxConcurrent: ptr.To[int32](1)}
			in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main", Set: []appsv1.ClusterValue{{Path: "name", Expr: "'" + name + "-' + metadata.name"}}}}
			create(ctx, in)
			Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
			return in
		}
		kept, abandoned := installed("kept"), installed("abandoned")
		all := map[string]string{"on-kept-a": "one-", "on-kept-b": "one-", "on-kept-c": "one-", "on-abandoned-a": "one-", "on-abandoned-b": "one-", "on-abandoned-c": "one-"}
		Expect(words(ctx, remote.Client(), there)()).To(Equal(all))
		patch(ctx, h.Plane.Client(), kept, `{"spec":{"deletionPolicy":"Orphan"}}`)
		Expect(h.Plane.Client().Delete(ctx, kept)).To(Succeed())
		patch(ctx, h.Plane.Client(), abandoned, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, abandoned.UID))
		Expect(h.Plane.Client().Delete(ctx, abandoned)).To(Succeed())
		for _, in := range []*appsv1.KsctlInstall{kept, abandoned} {
			Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
		}
		var left appsv1.KsctlInstallList
		Expect(h.Plane.Client().List(ctx, &left, client.InNamespace(here))).To(Succeed())
		Expect(left.Items).To(BeEmpty())
		Expect(words(ctx, remote.Client(), there)()).To(Equal(all))
	})

	It("is one of its own beside one of a single cluster, and neither becomes the other while something is installed", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		fleetOf(ctx, here, "a")
		charted(ctx, here, "main@sha1:1", "one", "")
		in := harness.Install(here, "app")
		in.Spec.TargetNamespace = there
		in.Spec.ClusterRef = &appsv1.ClusterReference{Name: "a"}
		in.Spec.ValuesFrom = []appsv1.ValuesReference{{Kind: appsv1.ClusterValues, Component: "main", Set: []appsv1.ClusterValue{{Path: "name", Expr: "metadata.name"}}}}
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		patch(ctx, h.Plane.Client(), in, `{"spec":{"clusterRef":null,"clusterSelector":{}}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False ClusterChanged: what is installed is on KsctlCluster " + here + "/a, and the spec has a clusterSelector by now"))
		patch(ctx, h.Plane.Client(), in, `{"spec":{"clusterRef":{"name":"a"},"clusterSelector":null}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "rm"}, Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: "many"}}}
		many := harness.Install(here, "many")
		many.Spec.ClusterSelector = &appsv1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "none"}}}
		create(ctx, many)
		Eventually(ctx, stands(ctx, many), soon).Should(Equal("Unknown NoClusters: spec.clusterSelector picks no KsctlCluster of namespace " + here))
		create(ctx, rm)
		Eventually(ctx, stands(ctx, rm), soon).Should(HavePrefix("False FormNotSupported: KsctlInstall many is for many clusters"))
		for _, o := range []client.Object{rm, many, in} {
			Expect(h.Plane.Client().Delete(ctx, o)).To(Succeed())
			Eventually(ctx, absent(ctx, h.Plane.Client(), o), soon).Should(BeTrue())
		}
		Expect(words(ctx, remote.Client(), there)()).To(BeEmpty())
	})
})
