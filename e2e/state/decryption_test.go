package state_test

import (
	"context"
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
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

// encryptAs encrypts a file with SOPS: the values of keys that match a regular expression, or all.
func encryptAs(f sops.Format, regex, plain string, to *age.X25519Identity) string {
	GinkgoHelper()
	out, err := codec.Encrypt(context.Background(),
		sops.EncryptRequest{Data: []byte(plain), Format: f, Recipients: []string{to.Recipient().String()},
			EncryptedRegex: regex})
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

// encryptedStack returns a stack with a component of every type, whose files have secrets.
func encryptedStack(to *age.X25519Identity, manifest, env, values string) map[string]string {
	GinkgoHelper()
	for _, secret := range []string{manifest, env, values} {
		scanner.AddSecret(secret)
	}
	return map[string]string{
		"stacks/app/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\nspec:\n  " +
			"version: 1.0.0\n  components:\n" +
			"  - {name: plain, manifests: [plain/]}\n  - {name: made, kustomize: {path: made}}\n" +
			"  - {name: chart, helm: {chart: chart, valuesFiles: [values.yaml]}}\n",
		"stacks/app/plain/login.yaml": encryptAs(sops.YAML, "^(data|stringData)$",
			"apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {password: "+manifest+"}\n", to),
		"stacks/app/made/kustomization.yaml": "secretGenerator: [{name: made, envs: [made.env]}]\n" +
			"generatorOptions: {disableNameSuffixHash: true}\n",
		"stacks/app/made/made.env":     encryptAs(sops.Dotenv, "", "TOKEN="+env+"\n", to),
		"stacks/app/values.yaml":       encryptAs(sops.YAML, "", "password: "+values+"\n", to),
		"stacks/app/chart/Chart.yaml":  "apiVersion: v2\nname: c\nversion: 1.0.0\n",
		"stacks/app/chart/values.yaml": "{password: '', more: ''}\n",
		"stacks/app/chart/templates/one.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: charted}\n" +
			"stringData: {password: {{ .Values.password | quote }}, more: {{ .Values.more | quote }}}\n",
		"stacks/unread.yaml": encryptAs(sops.YAML, "", "a: b\n", identity()),
	}
}

// newInstall returns a KsctlInstall of the stack "app" of the source "src".
func newInstall(ns, name string, change ...func(*appsv1.KsctlInstallSpec)) *appsv1.KsctlInstall {
	hour := &metav1.Duration{Duration: time.Hour}
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.KsctlInstallSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
			SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "stacks", Stack: "app",
			ServiceAccountName: harness.Deployer}}
	for _, f := range change {
		f(&in.Spec)
	}
	return in
}

func withKeys(s *appsv1.KsctlInstallSpec) {
	s.Decryption = &appsv1.Decryption{Provider: "sops", SecretRef: fluxmeta.LocalObjectReference{Name: "age"}}
}

// installReady is like importReady, for an install.
func installReady(ctx context.Context, in *appsv1.KsctlInstall) func() (string, error) {
	return func() (string, error) {
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
		if c == nil || c.ObservedGeneration != in.Generation {
			return "", nil
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message, nil
	}
}

var _ = Describe("A KsctlInstall of encrypted files", func() {
	It("applies them when the key exists, and nothing before", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine, other := identity(), identity()
		publish(ctx, ns, "main@sha1:1",
			encryptedStack(mine, "of-the-manifest-1", "of-the-env-file-1", "of-the-values-1"))
		in := newInstall(ns, "one")
		create(ctx, in)
		Eventually(ctx, installReady(ctx, in), soon).Should(Equal("False DecryptionKeyMissing: " +
			`component "made": file stacks/app/made/made.env; ` +
			`component "plain": file stacks/app/plain/login.yaml; component "chart": file stacks/app/values.yaml: they are encrypted with SOPS, but spec.decryption names no keys`))
		patch(ctx, in, `{"spec":{"decryption":{"provider":"sops","secretRef":{"name":"age"}}}}`)
		Eventually(ctx, installReady(ctx, in), soon).
			Should(HavePrefix("False SecretNotFound: Secret " + ns + "/age does not exist"))
		keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"},
			StringData: map[string]string{"keys.agekey": other.String()}}
		create(ctx, keys)
		Eventually(ctx, installReady(ctx, in), soon).
			Should(And(HavePrefix(`False DecryptionKeyMissing: component "made": file stacks/app/made/made.env: `),
				ContainSubstring(mine.Recipient().String())))
		for _, name := range []string{"login", "made", "charted"} {
			Expect(absent(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})()).To(BeTrue())
		}

		By("adding the key, which takes effect at once")
		keys.StringData = map[string]string{"keys.agekey": other.String() + "\n" + mine.String()}
		Expect(h.ControlPlane.Client().Update(ctx, keys)).To(Succeed())
		Eventually(ctx, installReady(ctx, in), soon).
			Should(HavePrefix("True ReconciliationSucceeded: Applied revision main@sha1:1"))
		Expect(secretOf(ctx, ns, "login")()).To(Equal(map[string]string{"password": "of-the-manifest-1"}))
		Expect(secretOf(ctx, ns, "made")()).To(Equal(map[string]string{"TOKEN": "of-the-env-file-1"}))
		Expect(secretOf(ctx, ns, "charted")()).To(Equal(map[string]string{"password": "of-the-values-1", "more": ""}))

		By("rotating the key, and encrypting a file to the new key")
		rotated := identity()
		keys.StringData = map[string]string{"keys.agekey": mine.String() + "\n" + rotated.String()}
		Expect(h.ControlPlane.Client().Update(ctx, keys)).To(Succeed())
		publish(ctx, ns, "main@sha1:2",
			encryptedStack(rotated, "of-the-manifest-2", "of-the-env-file-1", "of-the-values-1"))
		Eventually(ctx, secretOf(ctx, ns, "login"), soon).
			Should(Equal(map[string]string{"password": "of-the-manifest-2"}))
		Eventually(ctx, installReady(ctx, in), soon).
			Should(HavePrefix("True ReconciliationSucceeded: Applied revision main@sha1:2"))
		keys.StringData = map[string]string{"keys.agekey": rotated.String()}
		Expect(h.ControlPlane.Client().Update(ctx, keys)).To(Succeed())
		Consistently(ctx, installReady(ctx, in), 2*time.Second).Should(HavePrefix("True "))

		By("an install without the key, although the render is cached")
		second := newInstall(ns, "two", func(s *appsv1.KsctlInstallSpec) { s.TargetNamespace = ns })
		create(ctx, second)
		Eventually(ctx, installReady(ctx, second), soon).Should(HavePrefix("False DecryptionKeyMissing: "))
		patch(ctx, in, `{"spec":{"decryption":null}}`)
		Eventually(ctx, installReady(ctx, in), soon).Should(HavePrefix("False DecryptionKeyMissing: "))
		Expect(secretOf(ctx, ns, "login")()).To(HaveKeyWithValue("password", "of-the-manifest-2"),
			"the installed Secret stays")
		patch(ctx, in, `{"spec":{"decryption":{"provider":"sops","secretRef":{"name":"age"}}}}`)
		Eventually(ctx, installReady(ctx, in), soon).Should(HavePrefix("True "))
		Expect(h.ControlPlane.Client().Delete(ctx, second)).To(Succeed())
	})

	It("needs only the permissions in docs/stack-format.md for the keys, and accepts "+
		"encrypted values", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine := identity()
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"},
			StringData: map[string]string{"keys.agekey": mine.String()}})
		blocks, err := harness.CodeBlocks("docs/stack-format.md", "Encrypted files", "yaml")
		Expect(err).NotTo(HaveOccurred())
		rights := blocks[len(blocks)-1]
		Expect(rights).To(ContainSubstring("kind: RoleBinding"))
		Expect(h.ControlPlane.ApplyYAML(ctx,
			[]byte(strings.NewReplacer("namespace: monitoring", "namespace: "+ns, "name: deployer", "name: reader").
				Replace(rights)))).To(Succeed())
		// The other permissions that the install needs: to apply its objects, and to read the
		// values.
		Expect(h.ControlPlane.ApplyYAML(ctx, []byte(strings.ReplaceAll(`apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: install, namespace: NS}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [create]}
- {apiGroups: [""], resources: [secrets], resourceNames: [login, made, charted], verbs: [get, patch, delete]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [site], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: install, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: install}
subjects: [{kind: ServiceAccount, name: reader, namespace: NS}]
`, "NS", ns)))).To(Succeed())
		publish(ctx, ns, "main@sha1:1",
			encryptedStack(mine, "of-the-manifest-3", "of-the-env-file-3", "of-the-values-3"))
		values := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "site"},
			Data: map[string]string{"values.yaml": encryptAs(sops.YAML, "", "more: "+scanner.AddSecret("of-the-site-3")+
				"\n", mine)}}
		create(ctx, values)
		in := newInstall(ns, "one", withKeys, func(s *appsv1.KsctlInstallSpec) {
			// permissions take effect with a delay
			s.ServiceAccountName, s.RetryInterval = "reader", &metav1.Duration{Duration: time.Second}
			s.ValuesFrom = []appsv1.ValuesReference{{Kind: "ConfigMap", Name: "site", Component: "chart"}}
		})
		create(ctx, in)
		Eventually(ctx, installReady(ctx, in), soon).Should(HavePrefix("True ReconciliationSucceeded"))
		Expect(secretOf(ctx, ns, "charted")()).
			To(Equal(map[string]string{"password": "of-the-values-3", "more": "of-the-site-3"}))

		By("changing the values")
		values.Data["values.yaml"] = encryptAs(sops.YAML, "", "more: "+scanner.AddSecret("of-the-site-4")+"\n", mine)
		Expect(h.ControlPlane.Client().Update(ctx, values)).To(Succeed())
		Eventually(ctx, secretOf(ctx, ns, "charted"), soon).Should(HaveKeyWithValue("more", "of-the-site-4"))
	})

	It("reports what is wrong with a file, without its content", func(ctx SpecContext) {
		ns := namespace(ctx)
		mine := identity()
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "age"},
			StringData: map[string]string{"keys.agekey": mine.String()}})
		files := encryptedStack(mine, "of-the-manifest-5", "of-the-env-file-5", "of-the-values-5")
		files["stacks/app/chart/templates/two.yaml"] = `{{ fail (printf "it is %s" .Values.password) }}`
		publish(ctx, ns, "main@sha1:1", files)
		in := newInstall(ns, "one", withKeys)
		create(ctx, in)
		Eventually(ctx, installReady(ctx, in), soon).
			Should(And(HavePrefix("False InvalidStack: "), ContainSubstring("it is ***")))

		By("editing a file by hand")
		files["stacks/app/chart/templates/two.yaml"] = ""
		files["stacks/app/plain/login.yaml"] = replaceOnce(files["stacks/app/plain/login.yaml"], "name: login",
			"name: other")
		publish(ctx, ns, "main@sha1:2", files)
		Eventually(ctx, installReady(ctx, in), soon).
			Should(HavePrefix(`False DecryptionIntegrityFailed: component "plain": file stacks/app/plain/login.yaml: `))

		By("encrypting the stack file itself")
		files["stacks/app/stack.yaml"] = encryptAs(sops.YAML, "^description$", files["stacks/app/stack.yaml"], mine)
		publish(ctx, ns, "main@sha1:3", files)
		Eventually(ctx, installReady(ctx, in), soon).
			Should(HavePrefix("False InvalidStack: stacks/app/stack.yaml: a stack file must not be encrypted"))
		Expect(absent(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "login"}})()).To(BeTrue())
	})
})
