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

// exported is the state of a cluster, as ksctl exports it.
func exported(name, kubeconfig string) string {
	GinkgoHelper()
	doc, err := json.Marshal(map[string]any{"ID": "000000000000000000000000", "cluster_name": name, "cluster_type": "ha", "region": "LON1",
		"cloud_provider": "civo", "bootstrap_provider": "k3s", "cluster_kubeconfig": kubeconfig})
	Expect(err).NotTo(HaveOccurred())
	return string(doc)
}

var _ = Describe("An install for another cluster", func() {
	It("is installed, put right, held while the cluster does not answer, and removed with everything at once", func(ctx SpecContext) {
		plane := another(ctx)
		here, there := namespacesOn(ctx, plane)

		By("importing its state from an encrypted file in Git")
		key, err := age.GenerateX25519Identity()
		Expect(err).NotTo(HaveOccurred())
		heard.Secret(key.String())
		sealed, err := codec.Encrypt([]byte(exported("prod", kubeconfig(plane))), sops.JSON, []string{key.Recipient().String()}, codec.EncryptOptions{EncryptedRegex: state.EncryptedRegex})
		Expect(err).NotTo(HaveOccurred())
		repo, err := git.NewRepo(ctx, here)
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.Commit(ctx, map[string]string{"clusters/prod.json": string(sealed)}, "prod")
		Expect(err).NotTo(HaveOccurred())
		create(ctx, &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "states"}, Spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: repo.URL()}}})
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "age"}, StringData: map[string]string{"keys.agekey": key.String()}})
		imp := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "states"}, Spec: v1alpha1.ImportStateSpec{
			SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "states"}, Path: "clusters", Store: &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: here}},
			Decryption: &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}},
			Publish:    &v1alpha1.ClusterPublication{KubeConfig: true}, ServiceAccountName: harness.Deployer,
		}}
		create(ctx, imp)

		By("installing to it")
		offer(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True ReconciliationSucceeded: "))
		Expect(words(ctx, plane.Client(), there)()).To(Equal(map[string]string{"a": "one", "b": "one"}))
		Expect(words(ctx, h.Plane.Client(), here)()).NotTo(HaveKey("a"))
		Expect(in.Status.Cluster).To(Equal(here + ".prod"))
		c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"}}
		Eventually(ctx, func() (string, error) {
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(c), c)
			used := apimeta.FindStatusCondition(c.Status.Conditions, clusterv1.InUseCondition)
			if err != nil || used == nil {
				return "", err
			}
			return string(used.Status) + " " + used.Message, nil
		}, soon).Should(Equal("True KsctlInstall " + here + "/app"))

		By("putting right what somebody does there")
		a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "a"}}
		patch(ctx, plane.Client(), a, `{"data":{"word":"mine"}}`)
		Eventually(ctx, words(ctx, plane.Client(), there), soon).Should(HaveKeyWithValue("a", "one"))
		Expect(plane.Client().Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: "b"}})).To(Succeed())
		Eventually(ctx, words(ctx, plane.Client(), there), soon).Should(HaveKeyWithValue("b", "one"))

		By("stopping it")
		Expect(plane.StopAPIServer()).To(Succeed())
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("False ClusterUnreachable: KsctlCluster "+here+"/prod does not answer: connection refused; nothing is changed there until it does"),
			"nobody has to ask")
		offer(ctx, here, "main@sha1:2", map[string]string{"a": "two", "c": "two"})
		Consistently(ctx, stands(ctx, in), 3*time.Second).Should(HavePrefix("False ClusterUnreachable"))

		By("starting it")
		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		Eventually(ctx, words(ctx, plane.Client(), there), soon).Should(Equal(map[string]string{"a": "two", "c": "two"}))
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))

		By("deleting everything at once")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod-kubeconfig"}}
		for _, o := range []client.Object{c, secret, imp} {
			Expect(h.Plane.Client().Delete(ctx, o)).To(Succeed())
		}
		Eventually(ctx, func() (string, error) {
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(c), c)
			return message(c), err
		}, soon).Should(HavePrefix("in use by KsctlInstall " + here + "/app"))
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		for _, o := range []client.Object{in, c, secret} {
			Eventually(ctx, absent(ctx, h.Plane.Client(), o), soon).Should(BeTrue())
		}
		Expect(words(ctx, plane.Client(), there)()).To(BeEmpty())
	})

	It("is one of its own beside that of the same stack here, and the objects of the two are apart", func(ctx SpecContext) {
		here, _ := namespaces(ctx)
		prod(ctx, here)
		offer(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		local, far := harness.Install(here, "local"), install(here, "far", here)
		Expect(remote.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: here}})).To(Succeed())
		create(ctx, local)
		create(ctx, far)
		for _, in := range []*appsv1.KsctlInstall{local, far} {
			Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		}

		By("taking an object out, of which each of the two has one by the same name")
		offer(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		for _, c := range []client.Client{h.Plane.Client(), remote.Client()} {
			Eventually(ctx, words(ctx, c, here), soon).Should(Equal(map[string]string{"a": "two"}))
		}

		By("deleting the one here")
		Expect(h.Plane.Client().Delete(ctx, local)).To(Succeed())
		Eventually(ctx, absent(ctx, h.Plane.Client(), local), soon).Should(BeTrue())
		Expect(words(ctx, h.Plane.Client(), here)()).To(BeEmpty())
		Expect(words(ctx, remote.Client(), here)()).To(Equal(map[string]string{"a": "two"}))

		By("asking for the other to go")
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "far"}, Spec: appsv1.KsctlRemoveSpec{InstallRef: &appsv1.InstallRef{Name: "far"}}}
		create(ctx, rm)
		Eventually(ctx, stands(ctx, rm), soon).Should(HavePrefix("True "))
		Expect(words(ctx, remote.Client(), here)()).To(BeEmpty())
		Eventually(ctx, func() (string, error) {
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(far), far)
			return far.Status.Cluster, err
		}, soon).Should(BeEmpty(), "it has nothing there any more")
	})

	It("uses a kubeconfig in a Secret, follows its rotation, and needs the right to read it", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		offer(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "weak"}})
		in := install(here, "app", there)
		in.Spec.ClusterRef, in.Spec.KubeConfig = nil, &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "access", Key: "config"}}
		in.Spec.ServiceAccountName = "weak"
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(And(HavePrefix("False ReconciliationFailed: the kubeconfig of the cluster of Secret "+here+"/access, key config is in Secret "+here+"/access"), ContainSubstring("ServiceAccount "+here+"/weak may not get")))
		patch(ctx, h.Plane.Client(), in, `{"spec":{"serviceAccountName":"`+harness.Deployer+`"}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("False ClusterNotFound: Secret " + here + "/access, which should have the kubeconfig, does not exist"))

		first, err := remote.ConfigForUser("first-"+there, "system:masters")
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "access"}, StringData: map[string]string{"config": kubeconfigOf("first", first)}}
		create(ctx, secret)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		Expect(in.Status.Cluster).To(Equal("secret:" + here + ".access:config"))

		By("rotating it to somebody who may do nothing, and on to one who may")
		nobody, err := remote.ConfigForUser("nobody-" + there)
		Expect(err).NotTo(HaveOccurred())
		secret.StringData = map[string]string{"config": kubeconfigOf("nobody", nobody)}
		Expect(h.Plane.Client().Update(ctx, secret)).To(Succeed())
		offer(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		Eventually(ctx, stands(ctx, in), soon).ShouldNot(HavePrefix("True "))
		second, err := remote.ConfigForUser("second-"+there, "system:masters")
		Expect(err).NotTo(HaveOccurred())
		secret.StringData = map[string]string{"config": kubeconfigOf("second", second)}
		Expect(h.Plane.Client().Update(ctx, secret)).To(Succeed())
		Eventually(ctx, words(ctx, remote.Client(), there), soon).Should(Equal(map[string]string{"a": "two"}))
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))

		By("naming another cluster while something is installed")
		patch(ctx, h.Plane.Client(), in, `{"spec":{"kubeConfig":null}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False ClusterChanged: what is installed is on the cluster of Secret " + here + "/access, key config, and the spec names this cluster by now"))
		Expect(words(ctx, remote.Client(), there)()).To(HaveKey("a"))
		patch(ctx, h.Plane.Client(), in, `{"spec":{"kubeConfig":{"secretRef":{"name":"access","key":"config"}}}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
		Expect(words(ctx, remote.Client(), there)()).To(BeEmpty())
	})

	It("leaves what another cluster has that is reached by the same name, until somebody gives up what was there", func(ctx SpecContext) {
		second := another(ctx)
		here, there := namespaces(ctx)
		Expect(second.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there}})).To(Succeed())
		prod(ctx, here)
		offer(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		uid := in.Status.ClusterUID
		Expect(uid).NotTo(BeEmpty())

		By("building it anew under the same name")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"}}
		patch(ctx, h.Plane.Client(), secret, fmt.Sprintf(`{"stringData":{"value":%q}}`, kubeconfig(second)))
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False ClusterChanged: KsctlCluster " + here + "/prod leads to another cluster than the one that has what is installed"))
		offer(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		Consistently(ctx, stands(ctx, in), 2*time.Second).Should(HavePrefix("False ClusterChanged"))
		Expect(words(ctx, second.Client(), there)()).To(BeEmpty())
		Expect(words(ctx, remote.Client(), there)()).To(HaveLen(2))

		By("giving up what was there")
		var system corev1.Namespace
		Expect(second.Client().Get(ctx, client.ObjectKey{Name: "kube-system"}, &system)).To(Succeed())
		Expect(harness.Ready(in).Message).To(HaveSuffix(appsv1.ApproveAnnotation + ": " + string(system.UID)))
		patch(ctx, h.Plane.Client(), in, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.ApproveAnnotation, system.UID))
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		Expect(words(ctx, second.Client(), there)()).To(Equal(map[string]string{"a": "two"}))
		Expect(words(ctx, remote.Client(), there)()).To(HaveLen(2), "nobody is there to remove them")
		Expect(in.Status.ClusterUID).To(Equal(string(system.UID)))
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
		Expect(words(ctx, second.Client(), there)()).To(BeEmpty())
	})

	It("is held when its cluster is gone for ever, until somebody abandons what is there (must-survive 38)", func(ctx SpecContext) {
		plane := another(ctx)
		here, there := namespacesOn(ctx, plane)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"}, StringData: map[string]string{"value": kubeconfig(plane)}})
		c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "prod"},
			Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "prod"}, ServiceAccountName: harness.Deployer}}
		create(ctx, c)
		offer(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))

		Expect(plane.StopAPIServer()).To(Succeed())
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Expect(h.Plane.Client().Delete(ctx, c)).To(Succeed())
		Eventually(ctx, func() (string, error) {
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return harness.Ready(in).Reason + ": " + harness.Ready(in).Message, err
		}, soon).Should(And(HavePrefix("ClusterUnreachable: KsctlCluster "+here+"/prod does not answer"),
			HaveSuffix("; or leave what is there as it is, with the annotation "+appsv1.AbandonAnnotation+": "+string(in.UID))))
		Consistently(ctx, absent(ctx, h.Plane.Client(), in), 3*time.Second).Should(BeFalse())
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))

		patch(ctx, h.Plane.Client(), in, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.AbandonAnnotation, in.UID))
		Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
		Eventually(ctx, absent(ctx, h.Plane.Client(), c), soon).Should(BeTrue())
		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		Expect(words(ctx, plane.Client(), there)()).To(Equal(map[string]string{"a": "one"}))
	})

	It("has what a kind there needs as soon as it is served there", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		prod(ctx, here)
		group := there + ".example.com"
		Expect(h.Publish(ctx, here, "src", "main@sha1:1", harness.Tree(harness.OneComponent, map[string]string{
			"main/a.yaml": "apiVersion: " + group + "/v1\nkind: Widget\nmetadata: {name: a}\nspec: {size: 1}\n"}))).To(Succeed())
		in := install(here, "app", there)
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(ContainSubstring("Widget"))
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
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		AddReportEntry("Ready after the definition was there", time.Since(began).String())
	})

	It("removes what something else installed there, as it was approved", func(ctx SpecContext) {
		here, there := namespaces(ctx)
		prod(ctx, here)
		offer(ctx, here, "main@sha1:1", map[string]string{"a": "one", "b": "one"})
		for _, name := range []string{"a", "b", "other"} {
			Expect(remote.Client().Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: there, Name: name}, Data: map[string]string{"word": "one"}})).To(Succeed())
		}
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "rm"}, Spec: appsv1.KsctlRemoveSpec{
			SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app", TargetNamespace: there, ServiceAccountName: harness.Deployer,
			TargetCluster: appsv1.TargetCluster{ClusterRef: &appsv1.ClusterReference{Name: "prod"}}}}
		create(ctx, rm)
		Eventually(ctx, stands(ctx, rm), soon).Should(ContainSubstring("AwaitingApproval"))
		patch(ctx, h.Plane.Client(), rm, fmt.Sprintf(`{"spec":{"approvedDigest":%q}}`, rm.Status.Removal.Digest))
		Eventually(ctx, stands(ctx, rm), soon).Should(HavePrefix("True "))
		Expect(words(ctx, remote.Client(), there)()).To(Equal(map[string]string{"other": "one"}))
	})

	It("keeps workers for seconds when its cluster falls silent", func(ctx SpecContext) {
		line, err := newLine(strings.TrimPrefix(remote.Config().Host, "https://"))
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(line.Close)
		here, there := namespaces(ctx)
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "line"}, StringData: map[string]string{
			"value": strings.ReplaceAll(kubeconfig(remote), remote.Config().Host, "https://"+line.Addr())}})
		offer(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
		const many = 30
		var all []*appsv1.KsctlInstall
		for i := range many {
			ns := fmt.Sprintf("%s-%02d", there, i)
			Expect(remote.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
			in := install(here, fmt.Sprintf("far-%02d", i), ns)
			in.Spec.ClusterRef, in.Spec.KubeConfig = nil, &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "line"}}
			create(ctx, in)
			all = append(all, in)
		}
		for _, in := range all {
			Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))
		}

		By("cutting the line, without a word")
		line.Pause()
		offer(ctx, here, "main@sha1:2", map[string]string{"a": "two"})
		well := harness.Install(here, "well")
		began := time.Now()
		create(ctx, well)
		Eventually(ctx, stands(ctx, well), soon).Should(HavePrefix("True "))
		took := time.Since(began)
		AddReportEntry(fmt.Sprintf("beside %d installs for a cluster that falls silent one here is Ready after", many), took.String())
		Expect(took).To(BeNumerically("<", 40*time.Second), "a request is given up after 45 s: one who waits for another's would be later")
		for _, in := range all {
			Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False ClusterUnreachable"))
		}

		By("mending it")
		line.Resume()
		for _, in := range all {
			Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True ReconciliationSucceeded: Applied revision main@sha1:2"))
		}

		By("leaving none that asks for its cluster in vain beside the next spec")
		Expect(h.Plane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(here))).To(Succeed())
		for _, in := range append(all, well) {
			Eventually(ctx, absent(ctx, h.Plane.Client(), in), soon).Should(BeTrue())
		}
	})

	It("keeps no worker when its cluster says nothing", suite.Safety, func(ctx SpecContext) {
		// It takes connections, and says nothing.
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(silent.Close)
		// An answer is waited for 10 s: one who waits for another's is later each time, and a machine
		// that is slow now and then is not.
		const within, many = 10 * time.Second, 50
		took := within
		for try := 0; try < 3 && took >= within; try++ {
			took = beside(ctx, many, silent.Addr().String())
			AddReportEntry(fmt.Sprintf("beside %d installs for a cluster that says nothing one here is Ready after", many), took.String())
		}
		Expect(took).To(BeNumerically("<", within))
	})
})

// beside is how soon an install here is Ready beside many that are for a cluster that says nothing. They
// are told so, and go.
func beside(ctx context.Context, many int, silent string) (took time.Duration) {
	GinkgoHelper()
	here, _ := namespaces(ctx)
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: here, Name: "silent"}, StringData: map[string]string{
		"value": strings.ReplaceAll(kubeconfig(remote), remote.Config().Host, "https://"+silent)}})
	offer(ctx, here, "main@sha1:1", map[string]string{"a": "one"})
	for i := range many {
		in := install(here, fmt.Sprintf("silent-%02d", i), here)
		in.Spec.ClusterRef, in.Spec.KubeConfig = nil, &appsv1.KubeConfigReference{SecretRef: appsv1.SecretKeyReference{Name: "silent"}}
		create(ctx, in)
	}
	well := harness.Install(here, "well")
	began := time.Now()
	create(ctx, well)
	Eventually(ctx, stands(ctx, well), soon).Should(HavePrefix("True "))
	took = time.Since(began)
	first := install(here, "silent-00", here)
	Eventually(ctx, stands(ctx, first), soon).Should(Equal("False ClusterUnreachable: the cluster of Secret " + here + "/silent does not answer: it does not answer in time; nothing is changed there until it does"))
	Expect(h.Plane.Client().DeleteAllOf(ctx, &appsv1.KsctlInstall{}, client.InNamespace(here))).To(Succeed())
	Eventually(ctx, absent(ctx, h.Plane.Client(), first), soon).Should(BeTrue(), "it has nothing there")
	return took
}

// message is that of the Ready condition of a cluster.
func message(c *clusterv1.KsctlCluster) string {
	if ready := apimeta.FindStatusCondition(c.Status.Conditions, appsv1.ReadyCondition); ready != nil {
		return ready.Message
	}
	return ""
}
