package targets_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"time"

	"filippo.io/age"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// exportedState returns the state of a cluster like ksctl exports it.
func exportedState(name, kubeconfig string) string {
	GinkgoHelper()
	doc, err := json.Marshal(map[string]any{"ID": "000000000000000000000000", "cluster_name": name,
		"cluster_type": "ha", "region": "LON1",
		"cloud_provider": "civo", "bootstrap_provider": "k3s", "cluster_kubeconfig": kubeconfig})
	Expect(err).NotTo(HaveOccurred())
	return string(doc)
}

var _ = Describe("An install on another cluster", func() {
	It("is applied, corrected, paused while the cluster does not respond, and removed when everything is deleted "+
		"at once", func(ctx SpecContext) {
		plane := startCluster(ctx)
		here, there := createNamespacesOn(ctx, plane)

		By("importing the cluster's state from an encrypted file in Git")
		key, err := age.GenerateX25519Identity()
		Expect(err).NotTo(HaveOccurred())
		scanner.AddSecret(key.String())
		sealed, err := codec.Encrypt(ctx, sops.EncryptRequest{Data: []byte(exportedState("prod", kubeconfig(plane))),
			Format: sops.JSON, Recipients: []string{key.Recipient().String()}, EncryptedRegex: state.EncryptedRegex})
		Expect(err).NotTo(HaveOccurred())
		repo, err := git.NewRepo(ctx, here)
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.Commit(ctx, map[string]string{"clusters/prod.json": string(sealed)}, "prod")
		Expect(err).NotTo(HaveOccurred())
		create(ctx, &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "states"},
			Spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: repo.URL()}}})
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "age"},
			StringData: map[string]string{"keys.agekey": key.String()}})
		imp := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: here,
			Name: "states"}, Spec: v1alpha1.ImportStateSpec{
			SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "states"}, Path: "clusters",
			Store:      &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: here}},
			Decryption: &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}},
			Publish:    &v1alpha1.ClusterPublication{KubeConfig: true}, ServiceAccountName: harness.Deployer,
		}}
		create(ctx, imp)

		By("installing to the cluster")
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True ReconciliationSucceeded: "))
		Expect(configMapValues(ctx, plane.Client(), there)()).To(Equal(map[string]string{"a": "one", "b": "one"}))
		Expect(configMapValues(ctx, h.ControlPlane.Client(), here)()).NotTo(HaveKey("a"))
		Expect(in.Status.Cluster).To(Equal(here + ".prod"))
		c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"}}
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(c), c)
			used := apimeta.FindStatusCondition(c.Status.Conditions, clusterv1.InUseCondition)
			if err != nil || used == nil {
				return "", err
			}
			return string(used.Status) + " " + used.Message, nil
		}, soon).Should(Equal("True KsctlInstall " + here + "/app"))

		By("correcting changes by other clients")
		a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "a"}}
		patch(ctx, plane.Client(), a, `{"data":{"word":"mine"}}`)
		Eventually(ctx, configMapValues(ctx, plane.Client(), there), soon).Should(HaveKeyWithValue("a", "one"))
		Expect(plane.Client().
			Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "b"}})).To(Succeed())
		Eventually(ctx, configMapValues(ctx, plane.Client(), there), soon).Should(HaveKeyWithValue("b", "one"))

		By("stopping the cluster")
		Expect(plane.StopAPIServer()).To(Succeed())
		Eventually(ctx, readySummary(ctx, in), soon).Should(Equal("False ClusterUnreachable: KsctlCluster "+here+
			"/prod does not answer: connection refused; nothing is changed there until it does"),
			"without a request")
		publish(ctx, here, "main@sha1:2", map[string]string{"a": "two", "c": "two"})
		Consistently(ctx, readySummary(ctx, in), 3*time.Second).Should(HavePrefix("False ClusterUnreachable"))

		By("starting the cluster")
		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		Eventually(ctx, configMapValues(ctx, plane.Client(), there), soon).
			Should(Equal(map[string]string{"a": "two", "c": "two"}))
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))

		By("deleting everything at once")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod-kubeconfig"}}
		for _, o := range []client.Object{c, secret, imp} {
			Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
		}
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(c), c)
			return message(c), err
		}, soon).Should(HavePrefix("in use by KsctlInstall " + here + "/app"))
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		for _, o := range []client.Object{in, c, secret} {
			Eventually(ctx, absent(ctx, h.ControlPlane.Client(), o), soon).Should(BeTrue())
		}
		Expect(configMapValues(ctx, plane.Client(), there)()).To(BeEmpty())
	})

	It("is independent of an install of the same stack on this cluster", func(ctx SpecContext) {
		here, _ := createNamespaces(ctx)
		createProdCluster(ctx, here)
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		local, far := harness.NewInstall(here, "local"), install(here, "far", here)
		Expect(remote.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: here}})).To(Succeed())
		create(ctx, local)
		create(ctx, far)
		for _, in := range []*appsv1.KsctlInstall{local, far} {
			Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		}

		By("removing an object from the stack, which both clusters have")
		publish(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		for _, c := range []client.Client{h.ControlPlane.Client(), remote.Client()} {
			Eventually(ctx, configMapValues(ctx, c, here), soon).Should(Equal(map[string]string{"a": "two"}))
		}

		By("deleting the install on this cluster")
		Expect(h.ControlPlane.Client().Delete(ctx, local)).To(Succeed())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), local), soon).Should(BeTrue())
		Expect(configMapValues(ctx, h.ControlPlane.Client(), here)()).To(BeEmpty())
		Expect(configMapValues(ctx, remote.Client(), here)()).To(Equal(map[string]string{"a": "two"}))

		By("removing the other one by a KsctlRemove")
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "far"},
			Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: "far"}}}
		create(ctx, rm)
		Eventually(ctx, readySummary(ctx, rm), soon).Should(HavePrefix("True "))
		Expect(configMapValues(ctx, remote.Client(), here)()).To(BeEmpty())
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(far), far)
			return far.Status.Cluster, err
		}, soon).Should(BeEmpty(), "it has no objects on the cluster anymore")
	})

	It("uses a kubeconfig in a Secret, follows its rotation, and needs the permission to "+
		"read it", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "weak"}})
		in := install(here, "app", there)
		in.Spec.ClusterRef, in.Spec.KubeConfig = nil,
			&appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "access", Key: "config"}}
		in.Spec.ServiceAccountName = "weak"
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(And(HavePrefix("False ReconciliationFailed: the kubeconfig of the cluster of Secret "+here+
				"/access, key config is in Secret "+here+"/access"),
				ContainSubstring("ServiceAccount "+here+"/weak may not get")))
		patch(ctx, h.ControlPlane.Client(), in, `{"spec":{"serviceAccountName":"`+harness.Deployer+`"}}`)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(Equal("False ClusterNotFound: Secret " + here + "/access with the kubeconfig does not exist"))

		first, err := remote.ConfigForUser("first-"+there, "system:masters")
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "access"},
			StringData: map[string]string{"config": userKubeconfig("first", first)}}
		create(ctx, secret)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		Expect(in.Status.Cluster).To(Equal("secret:" + here + ".access:config"))

		By("rotating it to a user without permissions, and then to one with permissions")
		nobody, err := remote.ConfigForUser("nobody-" + there)
		Expect(err).NotTo(HaveOccurred())
		patch(ctx, h.ControlPlane.Client(), secret,
			fmt.Sprintf(`{"stringData":{"config":%q}}`, userKubeconfig("nobody", nobody)))
		publish(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		Eventually(ctx, readySummary(ctx, in), soon).ShouldNot(HavePrefix("True "))
		second, err := remote.ConfigForUser("second-"+there, "system:masters")
		Expect(err).NotTo(HaveOccurred())
		patch(ctx, h.ControlPlane.Client(), secret,
			fmt.Sprintf(`{"stringData":{"config":%q}}`, userKubeconfig("second", second)))
		Eventually(ctx, configMapValues(ctx, remote.Client(), there), soon).Should(Equal(map[string]string{"a": "two"}))
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))

		By("changing the cluster while objects are installed")
		patch(ctx, h.ControlPlane.Client(), in, `{"spec":{"kubeConfig":null}}`)
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(HavePrefix("False ClusterChanged: the installed objects are on the cluster of Secret " + here +
				"/access, key config, but the spec now names this cluster"))
		Expect(configMapValues(ctx, remote.Client(), there)()).To(HaveKey("a"))
		patch(ctx, h.ControlPlane.Client(), in,
			`{"spec":{"kubeConfig":{"secretRef":{"name":"access","key":"config"}}}}`)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		Expect(finalizers(ctx, secret)()).To(ConsistOf(appsv1.Finalizer))
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
		Expect(configMapValues(ctx, remote.Client(), there)()).To(BeEmpty())
		Eventually(ctx, finalizers(ctx, secret), soon).Should(BeEmpty(), "its kubeconfig is no longer in use")
	})

	It("writes nothing to a cluster that replaces the previous one under its name, until a user approves the loss of "+
		"the previous objects", func(ctx SpecContext) {
		second := startCluster(ctx)
		here, there := createNamespaces(ctx)
		Expect(second.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there}})).To(Succeed())
		createProdCluster(ctx, here)
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		uid := in.Status.ClusterUID
		Expect(uid).NotTo(BeEmpty())

		By("a new cluster under the same name")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"}}
		patch(ctx, h.ControlPlane.Client(), secret, fmt.Sprintf(`{"stringData":{"value":%q}}`, kubeconfig(second)))
		Eventually(ctx, readySummary(ctx, in), soon).
			Should(HavePrefix("False ClusterChanged: KsctlCluster " + here +
				"/prod now refers to another cluster than the one with the installed objects"))
		publish(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		Consistently(ctx, readySummary(ctx, in), 2*time.Second).Should(HavePrefix("False ClusterChanged"))
		Expect(configMapValues(ctx, second.Client(), there)()).To(BeEmpty())
		Expect(configMapValues(ctx, remote.Client(), there)()).To(HaveLen(2))

		By("approving the new cluster")
		var system corev1.Namespace
		Expect(second.Client().Get(ctx, client.ObjectKey{Name: "kube-system"}, &system)).To(Succeed())
		Expect(harness.ReadyCondition(in).Message).To(HaveSuffix(appsv1.ApproveAnnotation + ": " + string(system.UID)))
		patch(ctx, h.ControlPlane.Client(), in,
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.ApproveAnnotation, system.UID))
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		Expect(configMapValues(ctx, second.Client(), there)()).To(Equal(map[string]string{"a": "two"}))
		Expect(configMapValues(ctx, remote.Client(), there)()).
			To(HaveLen(2), "the objects on the previous cluster stay")
		Expect(in.Status.ClusterUID).To(Equal(string(system.UID)))
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
		Expect(configMapValues(ctx, second.Client(), there)()).To(BeEmpty())
	})

	It("is not removed when its cluster is gone for good, until a user abandons its objects", func(ctx SpecContext) {
		plane := startCluster(ctx)
		here, there := createNamespacesOn(ctx, plane)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"},
			StringData: map[string]string{"value": kubeconfig(plane)}})
		c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"},
			Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "prod"},
				ServiceAccountName: harness.Deployer}}
		create(ctx, c)
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))

		Expect(plane.StopAPIServer()).To(Succeed())
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Expect(h.ControlPlane.Client().Delete(ctx, c)).To(Succeed())
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return harness.ReadyCondition(in).Reason + ": " + harness.ReadyCondition(in).Message, err
		}, soon).Should(And(HavePrefix("ClusterUnreachable: KsctlCluster "+here+"/prod does not answer"),
			HaveSuffix("; or abandon the installed objects with the annotation "+appsv1.AbandonAnnotation+": "+
				string(in.UID))))
		Consistently(ctx, absent(ctx, h.ControlPlane.Client(), in), 3*time.Second).Should(BeFalse())
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))

		patch(ctx, h.ControlPlane.Client(), in,
			fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, in.UID))
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
		Eventually(ctx, absent(ctx, h.ControlPlane.Client(), c), soon).Should(BeTrue())
		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		Expect(configMapValues(ctx, plane.Client(), there)()).To(Equal(map[string]string{"a": "one"}))
	})

	It("applies an object as soon as the cluster serves its kind", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createProdCluster(ctx, here)
		group := there + ".example.com"
		Expect(h.PublishSource(ctx, here, "src", "main@sha1:1",
			harness.SourceTree(harness.OneComponent, map[string]string{
				"main/a.yaml": "apiVersion: " + group + "/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1}\n"}))).
			To(Succeed())
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, readySummary(ctx, in), soon).Should(ContainSubstring("Widget"))
		Expect(remote.ApplyYAML(ctx, []byte(strings.ReplaceAll(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, "GROUP", group)))).To(Succeed())
		began := time.Now()
		Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		AddReportEntry("Ready after the CRD was created", time.Since(began).String())
	})

	It("has a counterpart, a KsctlRemove, which removes objects of another tool after approval", func(ctx SpecContext) {
		here, there := createNamespaces(ctx)
		createProdCluster(ctx, here)
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		for _, name := range []string{"a", "b", "other"} {
			Expect(remote.Client().
				Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: name},
					Data: map[string]string{"word": "one"}})).To(Succeed())
		}
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: here,
			Name: "rm"}, Spec: appsv1.KsctlRemoveSpec{
			SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app",
			TargetNamespace: there, ServiceAccountName: harness.Deployer,
			TargetCluster: appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "prod"}}}}
		create(ctx, rm)
		Eventually(ctx, readySummary(ctx, rm), soon).Should(ContainSubstring("AwaitingApproval"))
		patch(ctx, h.ControlPlane.Client(), rm, fmt.Sprintf(`{"spec":{"approvedDigest":%q}}`, rm.Status.Removal.Digest))
		Eventually(ctx, readySummary(ctx, rm), soon).Should(HavePrefix("True "))
		Expect(configMapValues(ctx, remote.Client(), there)()).To(Equal(map[string]string{"other": "one"}))
	})

	It("blocks workers only for seconds when its cluster stops responding", func(ctx SpecContext) {
		line, err := newPausableProxy(strings.TrimPrefix(remote.Config().Host, "https://"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(line.Close)
		here, there := createNamespaces(ctx)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here,
			Name: "line"}, StringData: map[string]string{
			"value": strings.ReplaceAll(kubeconfig(remote), remote.Config().Host, "https://"+line.Addr())}})
		publish(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		const many = 30
		var all []*appsv1.KsctlInstall
		for i := range many {
			ns := fmt.Sprintf("%s-%02d", there, i)
			Expect(remote.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).
				To(Succeed())
			in := install(here, fmt.Sprintf("far-%02d", i), ns)
			in.Spec.ClusterRef, in.Spec.KubeConfig = nil,
				&appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "line"}}
			create(ctx, in)
			all = append(all, in)
		}
		for _, in := range all {
			Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("True "))
		}

		By("pausing the connections")
		line.Pause()
		publish(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		well := harness.NewInstall(here, "well")
		began := time.Now()
		create(ctx, well)
		Eventually(ctx, readySummary(ctx, well), soon).Should(HavePrefix("True "))
		took := time.Since(began)
		AddReportEntry(fmt.Sprintf("beside %d installs for a cluster that stops responding, an install on this "+
			"cluster is Ready after", many), took.String())
		Expect(took).To(BeNumerically("<", 40*time.Second),
			"a request times out after 45 s: an install that waited for another's request would be later")
		for _, in := range all {
			Eventually(ctx, readySummary(ctx, in), soon).Should(HavePrefix("False ClusterUnreachable"))
		}

		By("resuming the connections")
		line.Resume()
		for _, in := range all {
			Eventually(ctx, readySummary(ctx, in), soon).
				Should(HavePrefix("True ReconciliationSucceeded: Applied revision main@sha1:2"))
		}

		By("deleting the installs, which would retry during the next specs")
		Expect(h.ControlPlane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(here))).To(Succeed())
		for _, in := range append(all, well) {
			Eventually(ctx, absent(ctx, h.ControlPlane.Client(), in), soon).Should(BeTrue())
		}
	})

	It("blocks no worker when its cluster does not respond", suite.Safety, func(ctx SpecContext) {
		// It accepts connections, and sends nothing.
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(silent.Close)
		// A request without a response times out after 10 s: an install that waits for another's
		// request is later in each try, and one on a machine that is slow now and then is not.
		const within, many = 10 * time.Second, 50
		took := within
		for try := 0; try < 3 && took >= within; try++ {
			took = readyBesideSilent(ctx, many, silent.Addr().String())
			AddReportEntry(fmt.Sprintf("beside %d installs for a cluster that does not respond, an install on this "+
				"cluster is Ready after", many), took.String())
		}
		Expect(took).To(BeNumerically("<", within))
	})
})

// readyBesideSilent returns how long an install on this cluster takes to be Ready beside many
// installs for a cluster that does not respond. It checks that these report that, and deletes
// them.
func readyBesideSilent(ctx context.Context, many int, silent string) (took time.Duration) {
	GinkgoHelper()
	here, _ := createNamespaces(ctx)
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here,
		Name: "silent"}, StringData: map[string]string{
		"value": strings.ReplaceAll(kubeconfig(remote), remote.Config().Host, "https://"+silent)}})
	publish(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
	for i := range many {
		in := install(here, fmt.Sprintf("silent-%02d", i), here)
		in.Spec.ClusterRef, in.Spec.KubeConfig = nil,
			&appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "silent"}}
		create(ctx, in)
	}
	well := harness.NewInstall(here, "well")
	began := time.Now()
	create(ctx, well)
	Eventually(ctx, readySummary(ctx, well), soon).Should(HavePrefix("True "))
	took = time.Since(began)
	first := install(here, "silent-00", here)
	Eventually(ctx, readySummary(ctx, first), soon).
		Should(Equal("False ClusterUnreachable: the cluster of Secret " + here +
			"/silent does not answer: the request timed out; nothing is changed there until it does"))
	Expect(h.ControlPlane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(here))).To(Succeed())
	Eventually(ctx, absent(ctx, h.ControlPlane.Client(), first), soon).
		Should(BeTrue(), "it has no objects on the cluster")
	return took
}

// message returns the message of the Ready condition of a cluster.
func message(c *clusterv1.KsctlCluster) string {
	if ready := apimeta.FindStatusCondition(c.Status.Conditions, appsv1.ReadyCondition); ready != nil {
		return ready.Message
	}
	return ""
}
