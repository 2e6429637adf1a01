package install_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

// settings is a ConfigMap with a label and a key. Its values are in no message.
func settings(label, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, labels: {by: " + label + "}}\ndata: {" + value +
		"}\n---\n"
}

// appliedByKubectl applies objects as a tool that is about to be replaced.
func appliedByKubectl(ctx context.Context, ns, docs string) {
	GinkgoHelper()
	kubectl(ctx, ns, docs, "apply", "--server-side", "-f", "-")
}

var _ = Describe("Objects that are taken over", suite.Safety, func() {
	const theirs = "greeting: their-greeting, more: their-more"

	It("are listed with what changes, and never with values, with Always", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		web := strings.Replace(deployment("web", ""), "name: main,", "name: main, args: [their-argument],", 1)
		appliedByKubectl(ctx, ns, settings("them", theirs)+web)
		stack(ctx, ns, "main@sha1:1", settings("us", "greeting: our-greeting"), deployment("web", ""),
			configMap("b", "1"))
		in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		Eventually(ctx, eventsWithReason(ctx, in, appsv1.ObjectsDifferReason), soon).Should(ConsistOf(
			HaveField("Message", And(ContainSubstring(`component "main"`),
				ContainSubstring("/settings /data/greeting, /data/more; "),
				ContainSubstring("/web /spec/template/spec/containers/[name=main]/args"),
				Not(ContainSubstring("their-")), Not(ContainSubstring("our-")), Not(ContainSubstring("/b"))))))
		Expect(getConfigMap(ctx, ns, "settings").Data).To(Equal(map[string]string{"greeting": "our-greeting"}))
	})

	It("are all left alone with Unchanged while one of them would change, and then taken", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		appliedByKubectl(ctx, ns, settings("them", theirs)+configMap("same", "1"))
		before := getConfigMap(ctx, ns, "settings")
		docs := []string{settings("us", "greeting: our-greeting"), configMap("same", "1"), configMap("b", "1")}
		stack(ctx, ns, "main@sha1:1", docs...)
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", retryEvery(time.Second), withAdopt(appsv1.AdoptUnchanged))
		becomes(ctx, in, "False", appsv1.ObjectsDifferReason)
		Expect(ready(in).Message).To(And(HaveSuffix("/settings /data/greeting, /data/more"),
			ContainSubstring("set spec.adopt to Always"), Not(ContainSubstring("their-")),
			Not(ContainSubstring("our-")),
			Not(ContainSubstring("same"))))
		requestReconcile(ctx, in, "again")
		Expect(writes(ctx, ns, mark).Without(cluster.DryRun)).To(BeEmpty(), "nothing of the component is written")

		By("making the object equal")
		appliedByKubectl(ctx, ns, settings("them", "greeting: our-greeting"))
		atRevision(ctx, in, "main@sha1:1")
		a := getConfigMap(ctx, ns, "settings")
		Expect(a.UID).To(Equal(before.UID))
		expectOwnedBy(a, in)
		Expect(a.ManagedFields).To(HaveEach(HaveField("Manager", live.FieldManager)), "it is taken over as with Always")
		Expect(eventsWithReason(ctx, in, appsv1.ObjectsDifferReason)()).To(HaveEach(HaveField("Message",
			ContainSubstring("no object is taken over"))))

		By("replacing it by an object of another tool while the install is suspended")
		suspend(ctx, in)
		Expect(plane.Client().Delete(ctx, aConfigMap(ns, "settings"))).To(Succeed())
		appliedByKubectl(ctx, ns, settings("them", theirs))
		edit(ctx, in, resume)
		becomes(ctx, in, "False", appsv1.ObjectsDifferReason)
		Expect(getConfigMap(ctx, ns, "settings").Data).To(HaveKeyWithValue("greeting", "their-greeting"))
		appliedByKubectl(ctx, ns, settings("them", "greeting: our-greeting"))
		atRevision(ctx, in, "main@sha1:1")
		deleteAndWait(ctx, in)
		Expect(absent(ctx, aConfigMap(ns, "settings"))).To(BeTrue(), "it is removed as with Always")
	})
})

// generatingChart is a chart that generates a password, an id as a part of a key, and certificates:
// one with its key, and one of an authority whose key is not stored.
func generatingChart(ns, version, password string) map[string]string {
	return map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: shop\nversion: " + version + "\n",
		"templates/login.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData:\n" +
			"  password: {{ " + password + " }}\n",
		"templates/session.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: session}\nstringData:\n" +
			"  url: redis://{{ randAlphaNum 20 }}@cache\n",
		"templates/twins.yaml": "{{- $p := randAlphaNum 16 }}\n{{- range list \"a\" \"b\" }}\n---\n" +
			"apiVersion: v1\nkind: Secret\nmetadata: {name: twin-{{ . }}}\nstringData: {key: {{ $p }}}\n{{- end }}\n",
		"templates/raw.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: raw}\ndata: {raw: {{ randAlphaNum " +
			"32 }}}\n",
		"templates/pin.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: pin}\nstringData: {pin: {{ " +
			"randAlphaNum 16 }}}\n",
		"templates/self.yaml": "{{- $cert := genSelfSignedCert \"self\" nil nil 365 }}\n" +
			"apiVersion: v1\nkind: Secret\nmetadata: {name: self}\n" +
			"data: {tls.crt: {{ $cert.Cert | b64enc }}, tls.key: {{ $cert.Key | b64enc }}}\n",
		"templates/webhook.yaml": "{{- $ca := genCA \"shop\" 365 }}{{ $cert := genSignedCert \"shop\" nil nil 365 " +
			"$ca }}\n" +
			"apiVersion: v1\nkind: Secret\nmetadata: {name: tls}\n" +
			"data: {tls.crt: {{ $cert.Cert | b64enc }}, tls.key: {{ $cert.Key | b64enc }}}\n---\n" +
			"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: " +
			ns + "}\n" +
			"webhooks:\n- name: check.example.com\n  sideEffects: None\n  admissionReviewVersions: [v1]\n" +
			"  failurePolicy: Ignore\n  clientConfig: {url: \"https://check.example.com\", caBundle: {{ $ca.Cert | " +
			"b64enc }}}\n",
		"templates/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata:\n" +
			"{{- range list \"login\" \"session\" \"self\" }}\n" +
			"  {{ . }}: {{ include (print $.Template.BasePath \"/\" . \".yaml\") $ | sha256sum }}\n{{- end }}\n",
	}
}

// generatedFields returns the generated fields of generatingChart.
func generatedFields(ctx context.Context, ns string) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	for _, name := range []string{"login", "session", "raw", "pin", "twin-a", "twin-b", "self", "tls"} {
		secret := &corev1.Secret{ObjectMeta: objectMeta(ns, name)}
		Expect(get(ctx, secret)).To(Succeed())
		for key, value := range secret.Data {
			out[name+"/"+key] = string(value)
		}
	}
	for key, value := range getConfigMap(ctx, ns, "config").Data {
		out["config/"+key] = value
	}
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: objectMeta("", ns)}
	Expect(get(ctx, webhook)).To(Succeed())
	out["caBundle"] = string(webhook.Webhooks[0].ClientConfig.CABundle)
	return out
}

var _ = Describe("What Helm generated for a release", suite.Safety, func() {
	It("stays when the release is taken over and upgraded, and is generated again by request", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		DeferCleanup(func(ctx SpecContext) {
			webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: objectMeta("", ns)}
			Expect(client.IgnoreNotFound(plane.Client().Delete(ctx, webhook))).To(Succeed())
		})
		Expect(installWithHelm(ctx, ns, generatingChart(ns, "1.0.0", "randAlphaNum 16"), "")).To(Succeed())
		twin := &corev1.Secret{ObjectMeta: objectMeta(ns, "twin-b")}
		Expect(patch(ctx, twin, "somebody", `{"stringData":{"key":"changed-by-hand"}}`)).To(Succeed())
		pin := &corev1.Secret{ObjectMeta: objectMeta(ns, "pin")}
		// a number without quotes
		Expect(patch(ctx, pin, "somebody", `{"stringData":{"pin":"12345678"}}`)).To(Succeed())
		before := generatedFields(ctx, ns)

		By("taking it over")
		publish(ctx, ns, "src", "main@sha1:1", tree(releaseStack, releaseFiles(
			generatingChart(ns, "1.0.0", "randAlphaNum 16"), "")))
		in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		after := generatedFields(ctx, ns)
		for _, key := range []string{"config/login", "config/session", "config/self"} {
			before[key] = after[key] // in Helm, each include of a file generates other values
		}
		Expect(after).To(Equal(before))
		Eventually(ctx, eventsWithReason(ctx, in, appsv1.LiveValuesKeptReason),
			soon).Should(ConsistOf(HaveField("Message", And(
			ContainSubstring("Secret "+ns+"/session /data/url"), ContainSubstring("Secret "+ns+"/pin /data/pin"),
			ContainSubstring(ns+" /webhooks/[name=check.example.com]/clientConfig/caBundle"),
			ContainSubstring("made from other values: ConfigMap "+ns+"/config"), Not(ContainSubstring("/self")),
			Not(ContainSubstring("/login")), Not(ContainSubstring("/tls")), Not(ContainSubstring("/raw"))))))

		By("upgrading it to a version that generates the password in another way")
		publish(ctx, ns, "src", "main@sha1:2", tree(releaseStack, releaseFiles(
			generatingChart(ns, "2.0.0", "uuidv4"), "")))
		atRevision(ctx, in, "main@sha1:2")
		Expect(generatedFields(ctx, ns)).To(Equal(before))

		By("generating everything again")
		Expect(patch(ctx, in, "somebody", `{"metadata":{"annotations":{"`+appsv1.RotateAnnotation+`":"my@1"}}}`)).
			To(Succeed())
		Eventually(ctx, func() map[string]string { return generatedFields(ctx, ns) }, soon).Should(And(
			HaveKeyWithValue("login/password", Not(Equal(before["login/password"]))),
			HaveKeyWithValue("session/url", Not(Equal(before["session/url"]))),
			HaveKeyWithValue("tls/tls.crt", Not(Equal(before["tls/tls.crt"]))),
			HaveKeyWithValue("caBundle", Not(Equal(before["caBundle"])))))
		becomes(ctx, in, "True", "")
	})

	It("is read again when it changes before the release is taken over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		chart := map[string]string{"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
			"templates/login.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: " +
				"{password: {{ randAlphaNum 16 }}, host: {{ .Values.host }}}\n", "values.yaml": "host: theirs\n"}
		Expect(installWithHelm(ctx, ns, chart, "")).To(Succeed())
		publish(ctx, ns, "src", "main@sha1:1", tree(releaseStack, releaseFiles(chart, "host: ours\n")))
		in := newInstall(ctx, ns, "i", hourly, withAdopt(appsv1.AdoptUnchanged))
		becomes(ctx, in, "False", appsv1.ObjectsDifferReason)
		Expect(ready(in).Message).To(HaveSuffix("/login /data/host"))
		login := &corev1.Secret{ObjectMeta: objectMeta(ns, "login")}
		Expect(patch(ctx, login, "somebody", `{"stringData":{"password":"another-password"}}`)).To(Succeed())
		edit(ctx, in, withAdopt(appsv1.AdoptAlways))
		atRevision(ctx, in, "main@sha1:1")
		Expect(get(ctx, login)).To(Succeed())
		Expect(login.Data).To(And(HaveKeyWithValue("password", []byte("another-password")),
			HaveKeyWithValue("host", []byte("ours"))))
	})
})
