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

// identity returns a key pair and registers its private key with the scanner.
func identity() *age.X25519Identity {
	GinkgoHelper()
	id, err := age.GenerateX25519Identity()
	Expect(err).NotTo(HaveOccurred())
	scanner.AddSecret(id.String())
	return id
}

// encrypt returns a document as kubectl ksctl state encrypt writes it.
func encrypt(doc string, to *age.X25519Identity) string {
	GinkgoHelper()
	out, err := state.Encrypt(context.Background(), "a.json", []byte(doc), []string{to.Recipient().String()},
		codec.Encrypt)
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// encryptOldFormat returns a document as earlier releases wrote it: only known secrets are
// encrypted.
func encryptOldFormat(doc string, to *age.X25519Identity) string {
	GinkgoHelper()
	out, err := codec.Encrypt(context.Background(), sops.EncryptRequest{Data: []byte(doc), Format: sops.JSON,
		Recipients: []string{to.Recipient().String()}, EncryptedRegex: state.EncryptedRegex})
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

var _ = Describe("An ImportState of encrypted files", func() {
	It("imports states when the Secret has the key, and nothing before", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine, other := identity(), identity()
		repo, err := git.NewRepo(ctx, ns)
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.Commit(ctx,
			map[string]string{"clusters/prod.json": encrypt(string(fixture("v1_azure_ha_k3s.json")), mine)}, "one")
		Expect(err).NotTo(HaveOccurred())
		create(ctx, &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "src"},
			Spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: repo.URL()}}})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) { s.AllowPlaintext = false })
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("False DecryptionKeyMissing: clusters/prod.json: the file is encrypted with SOPS, " +
				"but spec.decryption is not set"))
		patch(ctx, in, `{"spec":{"decryption":{"provider":"sops","secretRef":{"name":"age"}}}}`)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("False SecretNotFound: Secret " + ns + "/age does not exist"))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"},
			StringData: map[string]string{"keys.agekey": other.String()}}
		create(ctx, secret)
		Eventually(ctx, importReady(ctx, in),
			soon).Should(And(HavePrefix("False DecryptionKeyMissing: clusters/prod.json: "),
			ContainSubstring("encrypted for the age recipients "+mine.Recipient().String()),
			ContainSubstring("the identities of "+other.Recipient().String())))
		Expect(stored(ctx, ns)).To(BeEmpty())

		By("adding the key, which takes effect at once")
		secret.StringData = map[string]string{"keys.agekey": other.String() + "\n" + mine.String()}
		Expect(h.ControlPlane.Client().Update(ctx, secret)).To(Succeed())
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 1 state and the credentials of 1 cloud in the ksctl store in " +
				"namespace " + ns))
		states, credentials := documents(fixture("v1_azure_ha_k3s.json"))
		Expect(stored(ctx, ns)).To(Equal(map[string]string{"azure.ha.demo.eastus": states[0]}))
		var stored corev1.Secret
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreSecret}, &stored)).
			To(Succeed())
		Expect(canonical(stored.Data["azure"])).To(Equal(credentials["azure"]))
		Expect(in.Status.LastAppliedRevision).To(HavePrefix("main@sha1:"))
	})

	It("needs only the permissions in docs/state.md", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine := identity()
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"},
			StringData: map[string]string{"keys.agekey": mine.String()}})
		rights, err := harness.CodeBlocks("docs/state.md", "What is written", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(rights).To(HaveLen(1))
		Expect(h.ControlPlane.ApplyYAML(ctx,
			[]byte(strings.NewReplacer("namespace: team", "namespace: "+ns, "namespace: ksctl", "namespace: "+ns).
				Replace(rights[0])))).To(Succeed())
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/prod.json": encrypt(string(fixture("v1_azure_ha_k3s.json")), mine)})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.AllowPlaintext, s.ServiceAccountName, s.DeletionPolicy = false, "importer", v1alpha1.DeleteState
			s.RetryInterval = &metav1.Duration{Duration: time.Second} // permissions take effect with a delay
			s.Decryption = &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
		})
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 1 state and the credentials of 1 cloud in the ksctl store in " +
				"namespace " + ns))
		Expect(h.ControlPlane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() error {
			return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
		}, soon).Should(MatchError(ContainSubstring("not found")))
		Expect(stored(ctx, ns)).To(BeEmpty())
	})

	It("refuses a file that was edited by hand, and a file with a plaintext secret", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine := identity()
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"},
			StringData: map[string]string{"keys.agekey": mine.String()}})
		encrypted := encrypt(document("demo", "one"), mine)
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": replaceOnce(encrypted, `"region": "LON1"`, `"region": "LON2"`)})
		in := newImport(ns, func(s *v1alpha1.ImportStateSpec) {
			s.AllowPlaintext = false
			s.Decryption = &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
		})
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("False DecryptionIntegrityFailed: clusters/a.json: the MAC does not match the values"))
		publish(ctx, ns, "main@sha1:2",
			map[string]string{"clusters/a.json": replaceOnce(encrypted, `"region": "LON1"`,
				`"cluster_kubeconfig": "one"`)})
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("False PlaintextSecrets: clusters/a.json: plaintext secrets at /cluster_kubeconfig"))
		Expect(stored(ctx, ns)).To(BeEmpty())
		publish(ctx, ns, "main@sha1:3", map[string]string{"clusters/a.json": encrypted})
		Eventually(ctx, importReady(ctx, in), soon).Should(HavePrefix("True "))

		By("a second file that an earlier release encrypted with a narrower rule")
		before := encryptOldFormat(document("before", "one"), mine)
		Expect(before).To(ContainSubstring(`"words": "one"`))
		Expect(encrypted).NotTo(ContainSubstring(`"one"`))
		publish(ctx, ns, "main@sha1:4", map[string]string{"clusters/a.json": encrypted, "clusters/b.json": before})
		Eventually(ctx, func() map[string]string { return stored(ctx, ns) }, soon).Should(Equal(map[string]string{
			keyOf("demo"):   canonical([]byte(document("demo", "one"))),
			keyOf("before"): canonical([]byte(document("before", "one")))}))
	})
})
