package install_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/stacks/generated"
)

// generatingStack is a chart that generates a password, a salted hash, an authority and a
// certificate.
func generatingStack(version, host string) fs.FS {
	return tree("spec:\n  version: 1.0.0\n  components:\n  - {name: shop, helm: {chart: ./chart}}\n", map[string]string{
		"chart/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: " + version + "\n",
		"chart/values.yaml": "host: " + host + "\n",
		"chart/templates/login.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData:\n " +
			" password: {{ randAlphaNum 16 }}\n" +
			"  auth: {{ htpasswd \"admin\" \"secret\" | quote }}\n",
		"chart/templates/tls.yaml": "{{- $ca := genCA \"shop\" 365 }}{{ $cert := genSignedCert .Values.host nil " +
			"(list .Values.host) 365 $ca }}\n" +
			"apiVersion: v1\nkind: Secret\nmetadata: {name: tls}\ndata: {ca.crt: {{ $ca.Cert | b64enc }}, " +
			"tls.crt: {{ $cert.Cert | b64enc }}, tls.key: {{ $cert.Key | b64enc }}}\n",
		"chart/templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata:\n" +
			"  checksum: {{ include (print $.Template.BasePath \"/login.yaml\") . | sha256sum }}\n  rendered: {{ now " +
			"| date \"2006-01-02T15:04:05\" }}\n",
	})
}

// generatedData returns the data of the objects of a generating chart, by name and key.
func generatedData(ctx context.Context, ns string) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	for _, name := range []string{"login", "tls"} {
		secret := &corev1.Secret{}
		Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, secret)).To(Succeed())
		for key, value := range secret.Data {
			out[name+"/"+key] = string(value)
		}
	}
	config := aConfigMap(ns, "config")
	Expect(get(ctx, config)).To(Succeed())
	for key, value := range config.Data {
		out["config/"+key] = value
	}
	return out
}

// generatedSecret returns the Secret with the generated values of a namespace.
func generatedSecret(ctx context.Context, ns string) *corev1.Secret {
	GinkgoHelper()
	var list corev1.SecretList
	Expect(plane.Client().List(ctx, &list, client.InNamespace(ns))).To(Succeed())
	var found []corev1.Secret
	for _, s := range list.Items {
		if s.Type == generated.SecretType {
			found = append(found, s)
		}
	}
	Expect(found).To(HaveLen(1))
	return &found[0]
}

var _ = Describe("What a chart generates", func() {
	It("stays the same over reconciles, restarts, corrections of drift and upgrades, and is removed "+
		"with it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		name := "generated-" + ns
		publish(ctx, ns, "src", "main@sha1:1", generatingStack("1.0.0", "a.example.com"))
		stop := startController(dedicated(name))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly, forController[*appsv1.KsctlInstall](name))
		atRevision(ctx, in, "main@sha1:1")
		first := generatedData(ctx, ns)
		kept := generatedSecret(ctx, ns)
		Expect(kept.Type).To(BeEquivalentTo(generated.SecretType))

		By("writing the Secret before what was rendered from it")
		writes := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write).Without(cluster.Failed)
		Expect(writes[0]).To(And(HaveField("Resource", "secrets"), HaveField("Name", kept.Name)), "%s", writes)
		Expect(writes).To(HaveLen(4), "%s", writes)

		By("reconciling again")
		mark = auditMark(ctx)
		for i := range 10 {
			requestReconcile(ctx, in, fmt.Sprint("again ", i))
		}
		Expect(generatedData(ctx, ns)).To(Equal(first))

		By("restarting the controller")
		stop()
		stop = startController(dedicated(name))
		requestReconcile(ctx, in, "after the restart")
		Expect(generatedData(ctx, ns)).To(Equal(first))
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)).To(BeEmpty())

		By("changing a Secret by hand")
		login := &corev1.Secret{}
		Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "login"}, login)).To(Succeed())
		Expect(patch(ctx, login, "mallory", `{"data":{"password":"`+base64.StdEncoding.EncodeToString([]byte("other"))+
			`"}}`)).To(Succeed())
		Eventually(ctx, func() map[string]string { return generatedData(ctx, ns) }, soon).Should(Equal(first))

		By("upgrading the chart, with another name in the certificate")
		publish(ctx, ns, "src", "main@sha1:2", generatingStack("1.1.0", "b.example.com"))
		atRevision(ctx, in, "main@sha1:2")
		second := generatedData(ctx, ns)
		for _, key := range []string{"login/password", "login/auth", "tls/ca.crt", "config/checksum"} {
			Expect(second).To(HaveKeyWithValue(key, first[key]))
		}
		Expect(second["tls/tls.crt"]).NotTo(Equal(first["tls/tls.crt"]))

		By("looking for the password in the status and the events")
		Expect(get(ctx, in)).To(Succeed())
		shown, err := json.Marshal([]any{in, eventsOf(ctx, in)})
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Contains(string(shown), first["login/password"])).To(BeFalse())

		By("removing the install")
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, in) && absent(ctx, kept) }, soon).Should(BeTrue())
		stop()
	})

	It("is in no message of an admission policy that quotes it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: ns},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
						RuleWithOperations: admissionregistrationv1.RuleWithOperations{
							Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
							Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
								Resources: []string{"configmaps"}}}}}},
				Validations: []admissionregistrationv1.Validation{{Expression: "!has(object.data.password)",
					MessageExpression: "'refused: ' + object.data.password"}}}}
		Expect(plane.Client().Create(ctx, policy)).To(Succeed())
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: ns},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: ns,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}}
		Expect(plane.Client().Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(plane.Client().Delete(ctx, binding)).To(Succeed())
			Expect(plane.Client().Delete(ctx, policy)).To(Succeed())
		})
		probe := aConfigMap(ns, "probe")
		probe.Data = map[string]string{"password": "x"}
		Eventually(ctx, func() error {
			return plane.Client().Create(ctx, probe.DeepCopy(), client.DryRunAll)
		}, soon, "50ms").ShouldNot(Succeed(), "the policy is in effect")
		publish(ctx, ns, "src", "main@sha1:1", tree("spec:\n  version: 1.0.0\n  components:\n"+
			"  - {name: shop, helm: {chart: ./chart}}\n", map[string]string{
			"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
			"chart/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" +
				"data: {password: {{ randAlphaNum 16 }}}\n"}))
		in := newInstall(ctx, ns, "i", hourly)
		reports(ctx, in, "False", "ReconciliationFailed", "refused: ***")
		values, err := generated.FromSecret(generatedSecret(ctx, ns))
		Expect(err).NotTo(HaveOccurred())
		for _, secret := range values.Secrets() {
			shown, err := json.Marshal([]any{in.Status, eventsOf(ctx, in)})
			Expect(err).NotTo(HaveOccurred())
			Expect(string(shown)).NotTo(ContainSubstring(secret))
		}
	})

	It("uses what lookup found until the chart changes, and finds only objects of the install", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		name := "lookup-" + ns
		chart := func(version string) fs.FS {
			return tree("spec:\n  version: 1.0.0\n  components:\n  - {name: shop, helm: {chart: "+
				"./chart}}\n", map[string]string{
				"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: " + version + "\n",
				"chart/templates/login.yaml": `{{- $old := lookup "v1" "Secret" .Release.Namespace "login" }}
apiVersion: v1
kind: Secret
metadata: {name: login}
data:
  password: {{ if $old }}{{ $old.data.password }}{{ else }}{{ randAlphaNum 16 | b64enc }}{{ end }}
`,
				"chart/templates/tls.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: tls}\n",
				"chart/templates/config.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data:
  login: "{{ lookup "v1" "Secret" .Release.Namespace "login" | empty | not }}"
  secrets: "{{ (lookup "v1" "Secret" .Release.Namespace "").items | len }}"
  foreign: "{{ lookup "v1" "ConfigMap" .Release.Namespace "foreign" | empty | not }}"
`,
			})
		}
		Expect(plane.ApplyYAML(ctx, []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign, namespace: "+ns+
			"}\n"))).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", chart("1.0.0"))
		stop := startController(dedicated(name))
		in := newInstall(ctx, ns, "i", hourly, forController[*appsv1.KsctlInstall](name))
		atRevision(ctx, in, "main@sha1:1")
		first := generatedData(ctx, ns)
		Expect(first).To(HaveKeyWithValue("config/login", "false"))
		Expect(first).To(HaveKeyWithValue("config/secrets", "0"))
		Expect(first).To(HaveKeyWithValue("config/foreign", "false"))

		By("changing the password by hand while no controller runs")
		stop()
		login := &corev1.Secret{}
		Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "login"}, login)).To(Succeed())
		Expect(patch(ctx, login, "mallory", `{"data":{"password":"`+base64.StdEncoding.EncodeToString([]byte("other"))+
			`"}}`)).To(Succeed())
		stop = startController(dedicated(name))
		Eventually(ctx, func() map[string]string { return generatedData(ctx, ns) }, soon).Should(Equal(first))

		By("upgrading the chart")
		publish(ctx, ns, "src", "main@sha1:2", chart("1.1.0"))
		atRevision(ctx, in, "main@sha1:2")
		second := generatedData(ctx, ns)
		Expect(second).To(HaveKeyWithValue("login/password", first["login/password"]))
		Expect(second).To(HaveKeyWithValue("config/login", "true"))
		Expect(second["config/secrets"]).To(BeElementOf("2", "3"), "with the Secret of the answers itself")
		Expect(second).To(HaveKeyWithValue("config/foreign", "false"))

		By("removing the install")
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, in) }, soon).Should(BeTrue())
		Expect(absent(ctx, login)).To(BeTrue())
		stop()
	})

	It("is found again when the status or the Secret with the values is lost", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		name := "generated-" + ns
		publish(ctx, ns, "src", "main@sha1:1", generatingStack("1.0.0", "a.example.com"))
		stop := startController(dedicated(name))
		in := newInstall(ctx, ns, "i", hourly, forController[*appsv1.KsctlInstall](name))
		atRevision(ctx, in, "main@sha1:1")
		first := generatedData(ctx, ns)

		By("creating the install again, as after the loss of the management cluster")
		stop()
		Expect(patch(ctx, in, "somebody", `{"metadata":{"finalizers":null}}`)).To(Succeed())
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		stop = startController(dedicated(name))
		in = newInstall(ctx, ns, "i", hourly, forController[*appsv1.KsctlInstall](name))
		atRevision(ctx, in, "main@sha1:1")
		Expect(generatedData(ctx, ns)).To(Equal(first))

		By("upgrading the chart")
		publish(ctx, ns, "src", "main@sha1:2", generatingStack("1.1.0", "a.example.com"))
		atRevision(ctx, in, "main@sha1:2")
		upgraded := generatedData(ctx, ns)
		Expect(upgraded).To(HaveKey("config/rendered"), "the time of a render of this chart")
		delete(upgraded, "config/rendered")
		delete(first, "config/rendered")
		Expect(upgraded).To(Equal(first))

		By("deleting the Secret")
		stop()
		Expect(plane.Client().Delete(ctx, generatedSecret(ctx, ns))).To(Succeed())
		stop = startController(dedicated(name))
		defer stop()
		requestReconcile(ctx, in, "after the loss")
		becomes(ctx, in, "True", "")
		second := generatedData(ctx, ns)
		for _, key := range []string{"login/password", "login/auth", "config/checksum"} {
			Expect(second).To(HaveKeyWithValue(key, first[key]))
		}
		for _, key := range []string{"tls/ca.crt", "tls/tls.crt", "tls/tls.key"} {
			Expect(second).To(HaveKeyWithValue(key, first[key]), "it stays: the key of the authority is lost")
		}
		Expect(generatedSecret(ctx, ns).Data).NotTo(BeEmpty())
		Expect(eventsOf(ctx, in)).To(ContainElement(And(HaveField("Reason", appsv1.GeneratedValuesLostReason),
			HaveField("Message", And(ContainSubstring("3 values are taken from other Secrets; unknown values: 1 ("),
				ContainSubstring("genCA#0"))))))
		Eventually(ctx, eventsWithReason(ctx, in, appsv1.LiveValuesKeptReason),
			soon).Should(ConsistOf(HaveField("Message",
			ContainSubstring("Secret "+ns+"/tls /data/ca.crt"))))

		By("rotating all values")
		Expect(patch(ctx, in, "somebody", `{"metadata":{"annotations":{"`+appsv1.RotateAnnotation+`":"shop@1"}}}`)).
			To(Succeed())
		Eventually(ctx, func() string {
			return generatedData(ctx, ns)["login/password"]
		}, soon).ShouldNot(Equal(first["login/password"]))
		becomes(ctx, in, "True", "")
		third := generatedData(ctx, ns)
		Expect(third["login/auth"]).NotTo(Equal(first["login/auth"]))
		Expect(third["tls/ca.crt"]).NotTo(Equal(first["tls/ca.crt"]))
		requestReconcile(ctx, in, "after the rotation")
		Expect(generatedData(ctx, ns)).To(Equal(third), "a token counts once")
	})

	It("is what was derived before, for an install from before it was kept", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		login := map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
			"chart/templates/login.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\n" +
				"stringData: {password: {{ randAlphaNum 16 }}}\n"}
		publish(ctx, ns, "src", "main@sha1:1",
			tree("spec:\n  version: 1.0.0\n  components:\n  - {name: shop, helm: {chart: ./chart}}\n", login))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.Generate = appsv1.GenerateRefuse
		})
		atRevision(ctx, in, "main@sha1:1")
		secret := &corev1.Secret{}
		Expect(plane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "login"}, secret)).To(Succeed())
		mark := auditMark(ctx)
		commit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Generate = "" })
		becomes(ctx, in, "True", "")
		writes := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
		Expect(writes).To(HaveLen(1), "only the Secret with the values: %s", writes)
		Expect(writes[0]).To(HaveField("Name", generatedSecret(ctx, ns).Name))
	})

	It("moves with its objects to an install that takes over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", generatingStack("1.0.0", "a.example.com"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		first := generatedData(ctx, ns)
		successor := newInstall(ctx, ns, "j", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.TakeOver = &appsv1.TakeOver{Name: "i"}
		})
		reports(ctx, successor, "False", "OwnedByAnother")
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, in) }, soon).Should(BeTrue())
		atRevision(ctx, successor, "main@sha1:1")
		Expect(generatedData(ctx, ns)).To(Equal(first))
		Expect(generatedSecret(ctx, ns).Annotations[live.MarkAnnotation]).To(ContainSubstring("/j"))
	})

	It("stays when the install is left in the cluster and created again, and whatever the rules "+
		"for drift", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", generatingStack("1.0.0", "a.example.com"))
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.DeletionPolicy = appsv1.DeletionOrphan
		})
		atRevision(ctx, in, "main@sha1:1")
		first := generatedData(ctx, ns)
		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		Eventually(ctx, func() bool { return absent(ctx, in) }, soon).Should(BeTrue())

		in = newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.Drift = &appsv1.Drift{Mode: appsv1.DriftIgnore,
				Ignore: []appsv1.IgnoreRule{{Target: &appsv1.IgnoreTarget{Kind: "Secret"}, Paths: []string{"/data"}}}}
		})
		atRevision(ctx, in, "main@sha1:1")
		Expect(generatedData(ctx, ns)).To(Equal(first))
		kept := generatedSecret(ctx, ns)
		Expect(patch(ctx, kept.DeepCopy(), "mallory", `{"data":{"values":""}}`)).To(Succeed())
		Eventually(ctx, func() map[string][]byte {
			return generatedSecret(ctx, ns).Data
		}, soon).Should(Equal(kept.Data))
	})

	It("differs between two installs, and follows spec.generate", func(ctx SpecContext) {
		one, other := namespaceFor(ctx), namespaceFor(ctx)
		for _, ns := range []string{one, other} {
			publish(ctx, ns, "src", "main@sha1:1", generatingStack("1.0.0", "a.example.com"))
			atRevision(ctx, newInstall(ctx, ns, "i", hourly), "main@sha1:1")
		}
		Expect(generatedData(ctx, one)["login/password"]).NotTo(Equal(generatedData(ctx, other)["login/password"]))

		refusing := namespaceFor(ctx)
		publish(ctx, refusing, "src", "main@sha1:1", generatingStack("1.0.0", "a.example.com"))
		in := newInstall(ctx, refusing, "i", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.Generate = appsv1.GenerateRefuse
		})
		reports(ctx, in, "False", "InvalidStack", "login.yaml:6: ", "htpasswd", "tls.yaml:1: ", "genCA",
			"genSignedCert", "config.yaml:6: ", "now")
	})
})
