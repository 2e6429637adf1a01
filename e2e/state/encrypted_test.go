package state_test

import (
	"context"
	"strings"
	"time"

	"filippo.io/age"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
	"github.com/ksctl/gitops/stacks/state"
)

// identity makes a key pair that nobody may tell the private half of.
func identity() *age.X25519Identity {
	GinkgoHelper()
	id, err := age.GenerateX25519Identity()
	Expect(err).NotTo(HaveOccurred())
	heard.Secret(id.String())
	return id
}

// sealed is a document as kubectl ksctl state encrypt makes it.
func sealed(doc string, to *age.X25519Identity) string {
	GinkgoHelper()
	out, err := state.Seal(context.Background(), "a.json", []byte(doc), []string{to.Recipient().String()}, codec.Encrypter(codec.Limits{}))
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// sealedBefore is one as earlier releases made it: only what was known to be secret is encrypted.
func sealedBefore(doc string, to *age.X25519Identity) string {
	GinkgoHelper()
	out, err := codec.Encrypt([]byte(doc), sops.JSON, []string{to.Recipient().String()}, codec.EncryptOptions{EncryptedRegex: state.EncryptedRegex})
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

var _ = Describe("An ImportState of encrypted files", func() {
	It("imports what a commit holds, once the Secret has the key, and nothing before (must-survive 12)", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine, other := identity(), identity()
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.Commit(ctx, map[string]string{"clusters/prod.json": sealed(string(fixture("v1_azure_ha_k3s.json")), mine)}, "one")
		Expect(err).NotTo(HaveOccurred())
		create(ctx, &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src"}, Spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: repo.URL()}}})
		in := imported(ns, func(s *v1alpha1.ImportStateSpec) { s.AllowPlaintext = false })
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("False DecryptionKeyMissing: clusters/prod.json: it is encrypted with SOPS, and spec.decryption names no keys"))
		patch(ctx, in, `{"spec":{"decryption":{"provider":"sops","secretRef":{"name":"age"}}}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False SecretNotFound: there is no Secret " + ns + "/age"))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"}, StringData: map[string]string{"keys.agekey": other.String()}}
		create(ctx, secret)
		Eventually(ctx, stands(ctx, in), soon).Should(And(HavePrefix("False DecryptionKeyMissing: clusters/prod.json: "),
			ContainSubstring("encrypted to the age recipients "+mine.Recipient().String()), ContainSubstring("those of "+other.Recipient().String())))
		Expect(stored(ctx, ns)).To(BeEmpty())

		By("adding the key, which is noticed at once")
		secret.StringData = map[string]string{"keys.agekey": other.String() + "\n" + mine.String()}
		Expect(h.Plane.Client().Update(ctx, secret)).To(Succeed())
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: 1 state and the credentials of 1 cloud in ksctl's store in namespace " + ns))
		states, credentials := documents(fixture("v1_azure_ha_k3s.json"))
		Expect(stored(ctx, ns)).To(Equal(map[string]string{"azure.ha.demo.eastus": states[0]}))
		var stored corev1.Secret
		Expect(h.Plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreSecret}, &stored)).To(Succeed())
		Expect(canonical(stored.Data["azure"])).To(Equal(credentials["azure"]))
		Expect(in.Status.LastAppliedRevision).To(HavePrefix("main@sha1:"))
	})

	It("needs no more rights than the page says", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine := identity()
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"}, StringData: map[string]string{"keys.agekey": mine.String()}})
		rights, err := harness.Blocks("docs/state.md", "What is written", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(rights).To(HaveLen(1))
		Expect(h.Plane.ApplyYAML(ctx, []byte(strings.NewReplacer("namespace: team", "namespace: "+ns, "namespace: ksctl", "namespace: "+ns).Replace(rights[0])))).To(Succeed())
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/prod.json": sealed(string(fixture("v1_azure_ha_k3s.json")), mine)})
		in := imported(ns, func(s *v1alpha1.ImportStateSpec) {
			s.AllowPlaintext, s.ServiceAccountName, s.DeletionPolicy = false, "importer", v1alpha1.DeleteState
			s.RetryInterval = &metav1.Duration{Duration: time.Second} // rights may be a moment behind
			s.Decryption = &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
		})
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: 1 state and the credentials of 1 cloud in ksctl's store in namespace " + ns))
		Expect(h.Plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() error { return h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in) }, soon).Should(MatchError(ContainSubstring("not found")))
		Expect(stored(ctx, ns)).To(BeEmpty())
	})

	It("refuses one that was changed by hand, and one of whose secrets some are readable", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine := identity()
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"}, StringData: map[string]string{"keys.agekey": mine.String()}})
		encrypted := sealed(document("demo", "one"), mine)
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": replaced(encrypted, `"region": "LON1"`, `"region": "LON2"`)})
		in := imported(ns, func(s *v1alpha1.ImportStateSpec) {
			s.AllowPlaintext = false
			s.Decryption = &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
		})
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False DecryptionIntegrityFailed: clusters/a.json: the MAC of the file is not that of its values"))
		publish(ctx, ns, "main@sha1:2", map[string]string{"clusters/a.json": replaced(encrypted, `"region": "LON1"`, `"cluster_kubeconfig": "one"`)})
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False PlaintextSecrets: clusters/a.json: secrets are readable at /cluster_kubeconfig"))
		Expect(stored(ctx, ns)).To(BeEmpty())
		publish(ctx, ns, "main@sha1:3", map[string]string{"clusters/a.json": encrypted})
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("True "))

		By("one beside it that an earlier release encrypted, by a narrower rule")
		before := sealedBefore(document("before", "one"), mine)
		Expect(before).To(ContainSubstring(`"words": "one"`))
		Expect(encrypted).NotTo(ContainSubstring(`"one"`))
		publish(ctx, ns, "main@sha1:4", map[string]string{"clusters/a.json": encrypted, "clusters/b.json": before})
		Eventually(ctx, func() map[string]string { return stored(ctx, ns) }, soon).Should(Equal(map[string]string{
			keyOf("demo"): canonical([]byte(document("demo", "one"))), keyOf("before"): canonical([]byte(document("before", "one")))}))
	})
})
