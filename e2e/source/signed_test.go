package source_test

import (
	"context"
	"fmt"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("A KsctlSource of a Git repository with signature verification", func() {
	It("applies only commits or tags with a trusted GPG or SSH signature", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "signed")
		r, err := repo.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		gpg, err := gitserver.NewPGPKey(time.Now().Add(-time.Hour), 0)
		Expect(err).NotTo(HaveOccurred())
		expired, err := gitserver.NewPGPKey(time.Now().Add(-2*time.Hour), time.Hour)
		Expect(err).NotTo(HaveOccurred())
		ssh, err := gitserver.NewKey("")
		Expect(err).NotTo(HaveOccurred())
		stranger, err := gitserver.NewKey("")
		Expect(err).NotTo(HaveOccurred())
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
			Name: "trusted"}, Data: map[string][]byte{
			"ann.asc": gpg.Export(), "old.asc": expired.Export(), "team.pub": []byte(ssh.Public)}})).To(Succeed())
		framework.StartController(h, "--watch-label-selector=spec="+ns)

		// signed makes a commit with a value, signs it unless sign is nil, and moves the branch.
		signed := func(value string, sign gitserver.SignFunc) string {
			GinkgoHelper()
			commit, err := r.Commit(ctx, stack(value), value)
			Expect(err).NotTo(HaveOccurred())
			if sign != nil {
				commit, err = r.SignCommit(ctx, commit, value, sign)
				Expect(err).NotTo(HaveOccurred())
				Expect(r.SetBranch(ctx, "main", commit)).To(Succeed())
			}
			return commit
		}
		signed("gpg", gpg.Sign)
		hour := &metav1.Duration{Duration: time.Hour}
		labels := map[string]string{"spec": ns}
		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src", Labels: labels},
			Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
				Git: &appsv1.GitSource{URL: r.URL(),
					Verify: &appsv1.GitVerification{SecretRef: fluxmeta.LocalObjectReference{Name: "trusted"}}}}}
		Expect(h.ControlPlane.Client().Create(ctx, src)).To(Succeed())
		in := harness.NewInstall(ns, "i")
		in.Labels = labels
		Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		value := func(ctx context.Context) (string, error) {
			cm := &corev1.ConfigMap{}
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "a"}, cm)
			return cm.Data["value"], err
		}
		Eventually(ctx, value, soon).Should(Equal("gpg"))

		tokens := 0
		is := func(reason, installed string) {
			GinkgoHelper()
			tokens++
			requestReconcile(ctx, src, fmt.Sprint(tokens))
			Eventually(ctx, func() (string, error) {
				err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(src), src)
				if ready := apimeta.FindStatusCondition(src.Status.Conditions, appsv1.ReadyCondition); ready != nil &&
					src.Status.LastHandledReconcileAt == fmt.Sprint(tokens) {
					return ready.Reason, err
				}
				return "", err
			}, soon).Should(Equal(reason))
			Expect(src.Status.Artifact).NotTo(BeNil(), "the verified artifact stays")
			Eventually(ctx, value, soon).Should(Equal(installed))
		}
		tampered := func(payload []byte) ([]byte, error) { return gpg.Sign(append([]byte("not "), payload...)) }
		signed("unsigned", nil)
		is("SignatureMissing", "gpg")
		signed("tampered", tampered)
		is("SignatureInvalid", "gpg")
		signed("stranger", stranger.Sign)
		is("SignerUnknown", "gpg")
		signed("expired", expired.Sign)
		is("SignerExpired", "gpg")
		signed("ssh", ssh.Sign)
		is("Succeeded", "ssh")

		By("tags")
		tag := func(value string, sign gitserver.SignFunc) {
			GinkgoHelper()
			_, err := r.SignTag(ctx, "v1", signed(value, nil), sign)
			Expect(err).NotTo(HaveOccurred())
		}
		tag("gpg tag", gpg.Sign)
		Expect(h.ControlPlane.Client().Patch(ctx, src, client.RawPatch("application/merge-patch+json",
			[]byte(`{"spec":{"git":{"ref":{"tag":"v1"},"verify":{"mode":"Tag"}}}}`)))).To(Succeed())
		is("Succeeded", "gpg tag")
		tag("strange tag", stranger.Sign)
		is("SignerUnknown", "gpg tag")
		tag("ssh tag", ssh.Sign)
		is("Succeeded", "ssh tag")
		for _, o := range []client.Object{in, src} {
			Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
			Eventually(ctx, func() error {
				return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
			}, soon).
				Should(MatchError(ContainSubstring("not found")), "%s is deleted", o.GetName())
		}
	})

	It("includes the files of submodules with recurseSubmodules", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "modules")
		lib, err := repo.NewRepo(ctx, ns+"-lib")
		Expect(err).NotTo(HaveOccurred())
		of, err := lib.Commit(ctx,
			map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
				"metadata: {name: a}\ndata: {value: of the submodule}\n"}, "lib")
		Expect(err).NotTo(HaveOccurred())
		r, err := repo.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		_, err = r.Commit(ctx, map[string]string{
			"stacks/app/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\n" +
				harness.OneComponent,
			".gitmodules": fmt.Sprintf("[submodule \"lib\"]\n\tpath = stacks/app/main\n\turl = %s\n",
				lib.URL()),
		}, "one", gitserver.Submodule("stacks/app/main", of))
		Expect(err).NotTo(HaveOccurred())
		framework.StartController(h, "--watch-label-selector=spec="+ns)
		labels := map[string]string{"spec": ns}
		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src", Labels: labels},
			Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: &metav1.Duration{Duration: time.Hour}},
				Git: &appsv1.GitSource{URL: r.URL(), RecurseSubmodules: true}}}
		in := harness.NewInstall(ns, "i")
		in.Labels = labels
		for _, o := range []client.Object{src, in} {
			Expect(h.ControlPlane.Client().Create(ctx, o)).To(Succeed())
		}
		Eventually(ctx, func() (string, error) {
			cm := &corev1.ConfigMap{}
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "a"}, cm)
			return cm.Data["value"], err
		}, soon).Should(Equal("of the submodule"))
		for _, o := range []client.Object{in, src} {
			Expect(h.ControlPlane.Client().Delete(ctx, o)).To(Succeed())
			Eventually(ctx, func() error {
				return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
			}, soon).
				Should(MatchError(ContainSubstring("not found")), "%s is deleted", o.GetName())
		}
	})
})
