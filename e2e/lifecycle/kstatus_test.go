package lifecycle_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/harness"
)

const (
	inProgress  = status.InProgressStatus
	current     = status.CurrentStatus
	failed      = status.FailedStatus
	terminating = status.TerminatingStatus
	gone        = status.Status("Gone")
)

// deployment is a Deployment whose pods become ready when their fate annotation is removed.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {%[2]s: %[3]s}}
    spec: {containers: [{name: main, image: "example.com/main:1"}]}
`

// publishUnready publishes a stack of one Deployment whose pods stay unready until makeReady.
func publishUnready(ctx context.Context, ns, revision, name string) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, "src", revision, harness.SourceTree(harness.OneComponent,
		map[string]string{"main/d.yaml": fmt.Sprintf(deployment, name, cluster.FateAnnotation,
			cluster.FateNeverReady)}))).To(Succeed())
}

// makeReady removes the fate annotation of a Deployment's pod.
func makeReady(ctx context.Context, ns, name string) {
	GinkgoHelper()
	var pods corev1.PodList
	Eventually(ctx, func() ([]corev1.Pod, error) {
		err := h.ControlPlane.Client().List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{"app": name})
		return pods.Items, err
	}, waitTimeout).Should(HaveLen(1))
	patch(ctx, &pods.Items[0], fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, cluster.FateAnnotation))
}

// deleteWithFinalizer deletes an object that also has a foreign finalizer, waits until our
// finalizer (ours, may be "") is removed, and then removes the foreign one.
func deleteWithFinalizer(ctx context.Context, l *history, o client.Object, ours string) {
	GinkgoHelper()
	finalizers := `["example.com/held"]`
	if ours != "" {
		finalizers = fmt.Sprintf(`["example.com/held",%q]`, ours)
	}
	patch(ctx, o, fmt.Sprintf(finalizersPatch, finalizers))
	Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
	Eventually(ctx, func() ([]string, error) {
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.GetFinalizers(), err
	}, waitTimeout).Should(Equal([]string{"example.com/held"}), "our finalizer is removed, the foreign one stays")
	l.awaitStatus(ctx, terminating)
	patch(ctx, o, fmt.Sprintf(finalizersPatch, "null"))
	l.awaitStatus(ctx, gone)
}

var _ = Describe("Kstatus returns the correct status for every version of", func() {
	It("a KsctlInstall", func(ctx SpecContext) {
		ns := namespace(ctx)
		in := harness.NewInstall(ns, "i")
		l := recordHistory(ctx, in)
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		l.awaitStatus(ctx, inProgress)
		publishUnready(ctx, ns, "r1", "one")
		makeReady(ctx, ns, "one")
		l.awaitStatus(ctx, current)
		By("publishing an invalid stack")
		Expect(h.PublishSource(ctx, ns, "src", "r2", harness.SourceTree("spec: {version: one}\n", nil))).To(Succeed())
		l.awaitStatus(ctx, failed)
		By("publishing a valid stack that becomes ready later")
		publishUnready(ctx, ns, "r3", "two")
		l.awaitStatus(ctx, inProgress)
		makeReady(ctx, ns, "two")
		l.awaitStatus(ctx, current)
		By("changing the spec of the install")
		patch(ctx, in, `{"spec":{"interval":"2h"}}`)
		Eventually(ctx, func(g Gomega) {
			g.Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)).To(Succeed())
			g.Expect(in.Status.ObservedGeneration).To(BeEquivalentTo(2))
			g.Expect(in.Status.Conditions).To(HaveExactElements(HaveField("Status", metav1.ConditionTrue)),
				"Ready is the only condition")
		}, waitTimeout).Should(Succeed())
		deleteWithFinalizer(ctx, l, in, "ksctl.com/teardown")
		l.expectStatuses(inProgress, current, failed, inProgress, current, inProgress, current, terminating, gone)
	})

	It("a KsctlSource", func(ctx SpecContext) {
		ns := namespace(ctx)
		r, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "s"}, Spec: appsv1.KsctlSourceSpec{
			Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour},
				RetryInterval: &metav1.Duration{Duration: time.Second}},
			Git: &appsv1.GitSource{URL: r.URL()}}}
		l := recordHistory(ctx, src)
		Expect(h.ControlPlane.Client().Create(ctx, src)).To(Succeed())
		Eventually(ctx, func() ([]metav1.Condition, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
			return src.Status.Conditions, err
		}, waitTimeout).Should(ContainElement(And(HaveField("Type", "Ready"), HaveField("Reason", "RepositoryEmpty"))))
		l.awaitStatus(ctx, inProgress)
		By("pushing the first commit")
		_, err = r.Commit(ctx, map[string]string{"a": "1"}, "one")
		Expect(err).NotTo(HaveOccurred())
		l.awaitStatus(ctx, current)
		By("setting an invalid semver range")
		patch(ctx, src, `{"spec":{"git":{"ref":{"semver":"one"}}}}`)
		l.awaitStatus(ctx, failed)
		By("setting a branch")
		patch(ctx, src, `{"spec":{"git":{"ref":{"semver":null,"branch":"main"}}}}`)
		l.awaitStatus(ctx, current)
		deleteWithFinalizer(ctx, l, src, "")
		l.expectStatuses(inProgress, current, inProgress, failed, inProgress, current, terminating, gone)
	})

	It("an ImportState", func(ctx SpecContext) {
		ns := namespace(ctx)
		in := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "s"}, Spec: v1alpha1.ImportStateSpec{
			Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour},
				RetryInterval: &metav1.Duration{Duration: time.Hour}},
			SourceRef:          &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"},
			Store:              &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: ns}},
			ServiceAccountName: harness.Deployer}}
		l := recordHistory(ctx, in)
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		l.awaitStatus(ctx, inProgress)
		state := `{"cluster_name":"demo","cluster_type":"ha","region":"LON1","cloud_provider":%q}`
		By("publishing a valid state")
		Expect(h.PublishSource(ctx, ns, "src", "r1",
			artifacts.Files(map[string]string{"demo.json": fmt.Sprintf(state, "civo")}))).To(Succeed())
		l.awaitStatus(ctx, current)
		By("publishing an invalid state")
		Expect(h.PublishSource(ctx, ns, "src", "r2",
			artifacts.Files(map[string]string{"demo.json": fmt.Sprintf(state, "cvio")}))).To(Succeed())
		l.awaitStatus(ctx, failed)
		By("publishing another valid state")
		Expect(h.PublishSource(ctx, ns, "src", "r3",
			artifacts.Files(map[string]string{"demo.json": fmt.Sprintf(state, "aws")}))).To(Succeed())
		l.awaitStatus(ctx, current)
		deleteWithFinalizer(ctx, l, in, "")
		l.expectStatuses(inProgress, current, failed, inProgress, current, terminating, gone)
	})

	It("an ExportState", func(ctx SpecContext) {
		ns := namespace(ctx)
		hour := &metav1.Duration{Duration: time.Hour}
		in := &v1alpha1.ExportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "s"}, Spec: v1alpha1.ExportStateSpec{
			Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour}, From: &v1alpha1.StateStore{Namespace: ns},
			ServiceAccountName: harness.Deployer,
			Recipients:         []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"},
			To:                 v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: "backup"}}}}
		l := recordHistory(ctx, in)
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		l.awaitStatus(ctx, inProgress)
		By("creating an empty state store")
		store := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ksctl-state"}}
		Expect(h.ControlPlane.Client().Create(ctx, store)).To(Succeed())
		l.awaitStatus(ctx, current)
		By("adding an invalid entry")
		patch(ctx, store,
			fmt.Sprintf(`{"binaryData":{"civo.ha.demo.LON1":%q}}`, base64.StdEncoding.EncodeToString([]byte("{}"))))
		l.awaitStatus(ctx, failed)
		By("removing the entry")
		patch(ctx, store, `{"binaryData":null}`)
		l.awaitStatus(ctx, current)
		deleteWithFinalizer(ctx, l, in, "")
		l.expectStatuses(inProgress, current, failed, current, terminating, gone)
	})

	It("a KsctlCluster", func(ctx SpecContext) {
		ns := namespace(ctx)
		hour := &metav1.Duration{Duration: time.Hour}
		in := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "c"}, Spec: clusterv1.KsctlClusterSpec{
			Schedule:      appsv1.Schedule{Interval: hour, RetryInterval: hour},
			KubeConfigRef: &clusterv1.KubeConfigRef{Name: "access"}, ServiceAccountName: harness.Deployer}}
		l := recordHistory(ctx, in)
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		l.awaitStatus(ctx, failed)
		By("creating the kubeconfig")
		access, err := os.ReadFile(h.ControlPlane.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "access"},
			StringData: map[string]string{"value": string(access)}}
		Expect(h.ControlPlane.Client().Create(ctx, secret)).To(Succeed())
		l.awaitStatus(ctx, current)
		By("setting a kubeconfig of an unreachable cluster")
		silent := base64.StdEncoding.EncodeToString(bytes.ReplaceAll(access, []byte(h.ControlPlane.Config().Host),
			[]byte("https://127.0.0.1:1")))
		patch(ctx, secret, fmt.Sprintf(`{"data":{"value":%q}}`, silent))
		l.awaitStatus(ctx, inProgress)
		By("restoring the kubeconfig")
		patch(ctx, secret, fmt.Sprintf(`{"data":{"value":%q}}`, base64.StdEncoding.EncodeToString(access)))
		l.awaitStatus(ctx, current)
		deleteWithFinalizer(ctx, l, in, "")
		l.expectStatuses(inProgress, failed, inProgress, current, inProgress, current, terminating, gone)
	})

	It("a KsctlRemove", func(ctx SpecContext) {
		ns := namespace(ctx)
		publishUnready(ctx, ns, "r1", "one")
		in := harness.NewInstall(ns, "i")
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		makeReady(ctx, ns, "one")
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return string(harness.ReadyCondition(in).Status), err
		}, waitTimeout).Should(Equal("True"))
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "rm"}, Spec: appsv1.KsctlRemoveSpec{
			InstallRef: &appsv1.InstallRef{Name: "i"}, Components: []string{"mian"}}}
		l := recordHistory(ctx, rm)
		Expect(h.ControlPlane.Client().Create(ctx, rm)).To(Succeed())
		l.awaitStatus(ctx, failed)
		By("removing an object with a foreign finalizer")
		d := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}}
		patch(ctx, d, fmt.Sprintf(finalizersPatch, `["example.com/held"]`))
		patch(ctx, rm, `{"spec":{"components":null}}`)
		l.awaitStatus(ctx, inProgress)
		Eventually(ctx, func() (*metav1.Time, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(d), d)
			return d.DeletionTimestamp, err
		}, waitTimeout).ShouldNot(BeNil())
		By("removing the finalizer")
		patch(ctx, d, fmt.Sprintf(finalizersPatch, "null"))
		l.awaitStatus(ctx, current)
		deleteWithFinalizer(ctx, l, rm, "ksctl.com/teardown")
		l.expectStatuses(inProgress, failed, inProgress, current, terminating, gone)
	})
})
