package kind_test

import (
	"strings"

	"filippo.io/age"
	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

var _ = Describe("A published stack with an encrypted file", func() {
	It("is decrypted with the keys of the KsctlKind, which no tenant can read", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		key, err := age.GenerateX25519Identity()
		Expect(err).NotTo(HaveOccurred())
		password := scanner.AddSecret("kind-password-" + tenant)
		scanner.AddSecret(key.String())
		sealed, err := codec.Encrypt(ctx, sops.EncryptRequest{Format: sops.YAML, EncryptedRegex: "^stringData$",
			Recipients: []string{key.Recipient().String()}, Data: []byte("apiVersion: v1\nkind: Secret\nmetadata: " +
				"{name: sealed}\nstringData: {password: " + password + "}\n")})
		Expect(err).NotTo(HaveOccurred())
		change := strings.NewReplacer("KIND", "Sealed", "manifests: [main.yaml]", "manifests: [main.yaml, sealed.yaml]",
			"{kind: Secret}, path", "{kind: Secret, name: web}, path")
		Expect(h.PublishSource(ctx, platform, "fleet", "main@sha1:1", artifacts.Files(map[string]string{
			"stacks/shop/stack.yaml": change.Replace(shopStack + strings.TrimPrefix(shopServes, "\n")),
			"stacks/shop/main.yaml":  shopObjects, "stacks/shop/sealed.yaml": string(sealed)}))).To(Succeed())

		By("waiting for the keys")
		k := newKind(ctx, platform, "Sealed", func(k *appsv1.KsctlKind) {
			k.Spec.Rollout = &appsv1.KindRollout{}
			k.Spec.Decryption = &appsv1.Decryption{Provider: "sops",
				SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
		})
		kindBecomes(ctx, k, "False SecretNotFound: Secret "+platform+"/age does not exist")
		keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: platform, Name: "age"},
			StringData: map[string]string{"keys.agekey": key.String()}}
		Expect(plane.Client().Create(ctx, keys)).To(Succeed())
		kindReady(ctx, k, "main@sha1:1")

		By("decrypting")
		a := newShop(ctx, "Sealed", tenant, "a", map[string]any{"greeting": "x"})
		shopBecomes(ctx, a, "True ")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "a-sealed"}}
		Expect(get(ctx, secret)).To(Succeed())
		Expect(string(secret.Data["password"])).To(Equal(password))

		By("restarting the controller")
		Expect(controller.Stop()).To(Succeed())
		controller.Start()
		remove(ctx, secret)
		Eventually(ctx, get).WithArguments(secret).WithTimeout(soon).Should(Succeed(), "it is put right")
		shopBecomes(ctx, a, "True ")
	})
})
