package lives_test

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

// deployment whose pods become ready when their fate is taken away.
const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}, annotations: {%[2]s: %[3]s}}
    spec: {containers: [{name: main, image: "example.com/main:1"}]}
`

// slow publishes a stack of one deployment that is not ready by itself.
func slow(ctx context.Context, ns, revision, name string) {
	GinkgoHelper()
	Expect(h.Publish(ctx, ns, "src", revision, harness.Tree(harness.OneComponent,
		map[string]string{"main/d.yaml": fmt.Sprintf(deployment, name, cluster.FateAnnotation, cluster.FateNeverReady)}))).To(Succeed())
}

// cheer lets the pods of a deployment become ready.
func cheer(ctx context.Context, ns, name string) {
	GinkgoHelper()
	var pods corev1.PodList
	Eventually(ctx, func() ([]corev1.Pod, error) {
		err := h.Plane.Client().List(ctx, &pods, client.InNamespace(ns), client.MatchingLabels{"app": name})
		return pods.Items, err
	}, soon).Should(HaveLen(1))
	change(ctx, &pods.Items[0], fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, cluster.FateAnnotation))
}

// ends deletes an object that somebody else holds as well, and lets go of it.
func ends(ctx context.Context, l *life, o client.Object, ours string) {
	GinkgoHelper()
	finalizers := `["example.com/held"]`
	if ours != "" {
		finalizers = fmt.Sprintf(`["example.com/held",%q]`, ours)
	}
	change(ctx, o, fmt.Sprintf(hold, finalizers))
	Expect(h.Plane.Client().Delete(ctx, o)).To(Succeed())
	Eventually(ctx, func() ([]string, error) {
		err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
		return o.GetFinalizers(), err
	}, soon).Should(Equal([]string{"example.com/held"}), "ours goes, that of others stays")
	l.reaches(ctx, terminating)
	change(ctx, o, fmt.Sprintf(hold, "null"))
	l.reaches(ctx, gone)
}

var _ = Describe("In each version of its life kstatus knows of", func() {
	It("a KsctlInstall whether it is in progress, current, failed or terminating", func(ctx SpecContext) {
		ns := namespace(ctx)
		in := harness.Install(ns, "i")
		l := record(ctx, in)
		Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
		l.reaches(ctx, inProgress)
		slow(ctx, ns, "r1", "one")
		cheer(ctx, ns, "one")
		l.reaches(ctx, current)
		By("a commit that can't be read")
		Expect(h.Publish(ctx, ns, "src", "r2", harness.Tree("spec: {version: one}\n", nil))).To(Succeed())
		l.reaches(ctx, failed)
		By("the next one, which takes a while")
		slow(ctx, ns, "r3", "two")
		l.reaches(ctx, inProgress)
		cheer(ctx, ns, "two")
		l.reaches(ctx, current)
		By("a change of its own spec")
		change(ctx, in, `{"spec":{"interval":"2h"}}`)
		Eventually(ctx, func(g Gomega) {
			g.Expect(h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)).To(Succeed())
			g.Expect(in.Status.ObservedGeneration).To(BeEquivalentTo(2))
			g.Expect(in.Status.Conditions).To(HaveExactElements(HaveField("Status", metav1.ConditionTrue)), "Ready and nothing else")
		}, soon).Should(Succeed())
		ends(ctx, l, in, "ksctl.com/teardown")
		l.was(inProgress, current, failed, inProgress, current, inProgress, current, terminating, gone)
	})

	It("a KsctlSource", func(ctx SpecContext) {
		ns := namespace(ctx)
		r, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}, Spec: appsv1.KsctlSourceSpec{
			Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour}, RetryInterval: &metav1.Duration{Duration: time.Second}},
			Git:      &appsv1.GitSource{URL: r.URL()}}}
		l := record(ctx, src)
		Expect(h.Plane.Client().Create(ctx, src)).To(Succeed())
		Eventually(ctx, func() ([]metav1.Condition, error) {
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
			return src.Status.Conditions, err
		}, soon).Should(ContainElement(And(HaveField("Type", "Ready"), HaveField("Reason", "RepositoryEmpty"))))
		l.reaches(ctx, inProgress)
		By("a first commit")
		_, err = r.Commit(ctx, map[string]string{"a": "1"}, "one")
		Expect(err).NotTo(HaveOccurred())
		l.reaches(ctx, current)
		By("a range that can't be read")
		change(ctx, src, `{"spec":{"git":{"ref":{"semver":"one"}}}}`)
		l.reaches(ctx, failed)
		By("a branch")
		change(ctx, src, `{"spec":{"git":{"ref":{"semver":null,"branch":"main"}}}}`)
		l.reaches(ctx, current)
		ends(ctx, l, src, "")
		l.was(inProgress, current, inProgress, failed, inProgress, current, terminating, gone)
	})

	It("an ImportState", func(ctx SpecContext) {
		ns := namespace(ctx)
		in := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}, Spec: v1alpha1.ImportStateSpec{
			Schedule:  appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour}, RetryInterval: &metav1.Duration{Duration: time.Hour}},
			SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Store: &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: ns}}, ServiceAccountName: harness.Deployer}}
		l := record(ctx, in)
		Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
		l.reaches(ctx, inProgress)
		state := `{"cluster_name":"demo","cluster_type":"ha","region":"LON1","cloud_provider":%q}`
		By("a first state")
		Expect(h.Publish(ctx, ns, "src", "r1", artifacts.Files(map[string]string{"demo.json": fmt.Sprintf(state, "civo")}))).To(Succeed())
		l.reaches(ctx, current)
		By("one that ksctl can't work with")
		Expect(h.Publish(ctx, ns, "src", "r2", artifacts.Files(map[string]string{"demo.json": fmt.Sprintf(state, "cvio")}))).To(Succeed())
		l.reaches(ctx, failed)
		By("the next one")
		Expect(h.Publish(ctx, ns, "src", "r3", artifacts.Files(map[string]string{"demo.json": fmt.Sprintf(state, "aws")}))).To(Succeed())
		l.reaches(ctx, current)
		ends(ctx, l, in, "")
		l.was(inProgress, current, failed, inProgress, current, terminating, gone)
	})

	It("an ExportState", func(ctx SpecContext) {
		ns := namespace(ctx)
		hour := &metav1.Duration{Duration: time.Hour}
		in := &v1alpha1.ExportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "s"}, Spec: v1alpha1.ExportStateSpec{
			Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour}, From: &v1alpha1.StateStore{Namespace: ns}, ServiceAccountName: harness.Deployer,
			Recipients: []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}, To: v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: "backup"}}}}
		l := record(ctx, in)
		Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
		l.reaches(ctx, inProgress)
		By("a store without a cluster")
		store := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "ksctl-state"}}
		Expect(h.Plane.Client().Create(ctx, store)).To(Succeed())
		l.reaches(ctx, current)
		By("an entry that is no state")
		change(ctx, store, fmt.Sprintf(`{"binaryData":{"civo.ha.demo.LON1":%q}}`, base64.StdEncoding.EncodeToString([]byte("{}"))))
		l.reaches(ctx, failed)
		By("its end")
		change(ctx, store, `{"binaryData":null}`)
		l.reaches(ctx, current)
		ends(ctx, l, in, "")
		l.was(inProgress, current, failed, current, terminating, gone)
	})

	It("a KsctlCluster", func(ctx SpecContext) {
		ns := namespace(ctx)
		hour := &metav1.Duration{Duration: time.Hour}
		in := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "c"}, Spec: clusterv1.KsctlClusterSpec{
			Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour}, KubeConfigRef: &clusterv1.KubeConfigRef{Name: "access"}, ServiceAccountName: harness.Deployer}}
		l := record(ctx, in)
		Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
		l.reaches(ctx, failed)
		By("a kubeconfig")
		access, err := os.ReadFile(h.Plane.Kubeconfig())
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "access"}, StringData: map[string]string{"value": string(access)}}
		Expect(h.Plane.Client().Create(ctx, secret)).To(Succeed())
		l.reaches(ctx, current)
		By("one of a cluster that does not answer")
		silent := base64.StdEncoding.EncodeToString(bytes.ReplaceAll(access, []byte(h.Plane.Config().Host), []byte("https://127.0.0.1:1")))
		change(ctx, secret, fmt.Sprintf(`{"data":{"value":%q}}`, silent))
		l.reaches(ctx, inProgress)
		By("the one before")
		change(ctx, secret, fmt.Sprintf(`{"data":{"value":%q}}`, base64.StdEncoding.EncodeToString(access)))
		l.reaches(ctx, current)
		ends(ctx, l, in, "")
		l.was(inProgress, failed, inProgress, current, inProgress, current, terminating, gone)
	})

	It("a KsctlRemove", func(ctx SpecContext) {
		ns := namespace(ctx)
		slow(ctx, ns, "r1", "one")
		in := harness.Install(ns, "i")
		Expect(h.Plane.Client().Create(ctx, in)).To(Succeed())
		cheer(ctx, ns, "one")
		Eventually(ctx, func() (string, error) {
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return string(harness.Ready(in).Status), err
		}, soon).Should(Equal("True"))
		rm := &appsv1.KsctlRemove{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "rm"}, Spec: appsv1.KsctlRemoveSpec{
			InstallRef: &appsv1.InstallRef{Name: "i"}, Components: []string{"mian"}}}
		l := record(ctx, rm)
		Expect(h.Plane.Client().Create(ctx, rm)).To(Succeed())
		l.reaches(ctx, failed)
		By("what somebody holds")
		d := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}}
		change(ctx, d, fmt.Sprintf(hold, `["example.com/held"]`))
		change(ctx, rm, `{"spec":{"components":null}}`)
		l.reaches(ctx, inProgress)
		Eventually(ctx, func() (*metav1.Time, error) {
			err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(d), d)
			return d.DeletionTimestamp, err
		}, soon).ShouldNot(BeNil())
		By("and lets go of")
		change(ctx, d, fmt.Sprintf(hold, "null"))
		l.reaches(ctx, current)
		ends(ctx, l, rm, "ksctl.com/teardown")
		l.was(inProgress, failed, inProgress, current, terminating, gone)
	})
})
