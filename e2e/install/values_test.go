package install_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// valued is a stack of one chart that gets values from all places.
const valued = `spec:
  version: 1.0.0
  parameters: {schema: {properties: {mode: {type: string, default: ""}}}}
  components:
  - name: chart
    helm: {chart: ./chart, values: {b: stack, c: stack, d: stack, e: stack, f: stack}}
    parameters:
      schema: {}
      map: "stack.mode == '' ? {} : {'values': {'e': stack.mode, 'f': stack.mode}}"
`

// chartOf returns the files of a chart with one template.
func chartOf(values, template string) map[string]string {
	return map[string]string{"chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n",
		"chart/values.yaml": values, "chart/templates/t.yaml": template}
}

const letters = `apiVersion: v1
kind: ConfigMap
metadata: {name: letters}
data: {a: {{ .Values.a }}, b: {{ .Values.b }}, c: {{ .Values.c }}, d: {{ .Values.d }}, e: {{ .Values.e }}, f: {{ .Values.f }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
data: {a: {{ .Values.a }}}
`

// valuesFrom sets spec.valuesFrom for the component "chart".
func valuesFrom(refs ...appsv1.ValuesReference) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		for i := range refs {
			refs[i].Component = "chart"
		}
		in.Spec.ValuesFrom = refs
	}
}

func valuesConfigMap(ns, key, values string) *corev1.ConfigMap {
	cm := aConfigMap(ns, "site")
	cm.Data = map[string]string{key: values}
	return cm
}

func privateValues(ns, values string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: objectMeta(ns, "private"), StringData: map[string]string{"values.yaml": values}}
}

// awaitLetters waits until the rendered ConfigMap "letters" has the wanted data.
func awaitLetters(ctx context.Context, ns string, want map[string]string) {
	GinkgoHelper()
	Eventually(ctx, func() (map[string]string, error) {
		cm := aConfigMap(ns, "letters")
		err := get(ctx, cm)
		return cm.Data, err
	}, soon, 10*time.Millisecond).Should(Equal(want), "a change of the values is applied")
}

var _ = Describe("Values", func() {
	It("come from the stack, valuesFrom, parameters and overrides in increasing precedence, and changes apply "+
		"at once", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(valued, chartOf("{a: chart, b: chart, c: chart, d: chart, e: chart, f: chart}", letters)))
		cm := valuesConfigMap(ns, "values.yaml", "{c: site, d: site, e: site, f: site}")
		secret := privateValues(ns, "{d: private, e: private, f: private}")
		Expect(plane.Client().Create(ctx, cm)).To(Succeed())
		Expect(plane.Client().Create(ctx, secret)).To(Succeed())
		in := newInstall(ctx, ns, "i", hourly, valuesFrom(appsv1.ValuesReference{Kind: "ConfigMap", Name: "site"},
			appsv1.ValuesReference{Kind: "Secret", Name: "private"}),
			func(in *appsv1.KsctlInstall) {
				in.Spec.Parameters = &apiextensionsv1.JSON{Raw: []byte(`{"mode": "parameter"}`)}
			},
			chooseComponents("chart", `{"values": {"f": "override"}}`))
		atRevision(ctx, in, "main@sha1:1")
		want := map[string]string{"a": "chart", "b": "stack", "c": "site", "d": "private", "e": "parameter",
			"f": "override"}
		awaitLetters(ctx, ns, want)

		mark := auditMark(ctx)
		began := time.Now()
		cm.Data["values.yaml"] = "{c: changed, d: changed}"
		Expect(plane.Client().Update(ctx, cm)).To(Succeed())
		want["c"] = "changed"
		awaitLetters(ctx, ns, want)
		AddReportEntry("from the change of the ConfigMap to the change of the object", time.Since(began).String())
		writes := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
		Expect(writes).To(HaveLen(1), "only the object with the value: %s", writes)

		secret.StringData = map[string]string{"values.yaml": "{d: secret}"}
		Expect(plane.Client().Update(ctx, secret)).To(Succeed())
		want["d"] = "secret"
		awaitLetters(ctx, ns, want)
		becomes(ctx, in, "True", "")
	})

	It("that are missing are reported, and used as soon as they exist", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(valued, chartOf("{a: chart}", letters)))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly,
			valuesFrom(appsv1.ValuesReference{Kind: "ConfigMap", Name: "site", Key: "eu.yaml"}))
		reports(ctx, in, "False", "ValuesNotFound", `ConfigMap "site"`, `component "chart"`,
			"the object does not exist")
		Expect(plane.Client().Create(ctx, valuesConfigMap(ns, "us.yaml", "{c: us}"))).To(Succeed())
		reports(ctx, in, "False", "ValuesNotFound", `ConfigMap "site"`, `component "chart"`,
			`key "eu.yaml" does not exist`)
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)).
			To(BeEmpty(), "nothing is applied in part")
		Expect(plane.Client().Update(ctx, valuesConfigMap(ns, "eu.yaml", "{c: eu}"))).To(Succeed())
		atRevision(ctx, in, "main@sha1:1")
		awaitLetters(ctx, ns, map[string]string{"a": "chart", "b": "stack", "c": "eu", "d": "stack", "e": "stack",
			"f": "stack"})

		By("keeping the installed objects when the values are deleted")
		Expect(plane.Client().Delete(ctx, valuesConfigMap(ns, "", ""))).To(Succeed())
		reports(ctx, in, "False", "ValuesNotFound", "the object does not exist")
		Expect(absent(ctx, aConfigMap(ns, "letters"))).To(BeFalse())
	})

	It("that are optional may be absent, and apply while they exist", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(valued, chartOf("{a: chart}", letters)))
		in := newInstall(ctx, ns, "i", hourly,
			valuesFrom(appsv1.ValuesReference{Kind: "ConfigMap", Name: "site", Optional: true}))
		atRevision(ctx, in, "main@sha1:1")
		want := map[string]string{"a": "chart", "b": "stack", "c": "stack", "d": "stack", "e": "stack", "f": "stack"}
		awaitLetters(ctx, ns, want)
		Expect(plane.Client().Create(ctx, valuesConfigMap(ns, "values.yaml", "{c: site}"))).To(Succeed())
		want["c"] = "site"
		awaitLetters(ctx, ns, want)
		Expect(plane.Client().Delete(ctx, valuesConfigMap(ns, "", ""))).To(Succeed())
		want["c"] = "stack"
		awaitLetters(ctx, ns, want)
	})
})

// secretValue is invalid as a label, an integer or a part of a port. secretPIN is a number.
var (
	secretValue = scanner.AddSecret("Hunter2!correct&horse")
	secretPIN   = scanner.AddSecret("735712349876")
)

var _ = DescribeTable("Secret values are not in a status or an event",
	func(ctx SpecContext, template, reason string, change bool) {
		ns := namespaceFor(ctx)
		files := chartOf("{password: none, pin: 0}", template)
		files["chart/values.schema.json"] = `{"type": "object", "properties": {"port": {"type": "integer"}}}`
		const stack = "spec:\n  version: 1.0.0\n  components:\n  - {name: chart, helm: {chart: ./chart}}\n"
		publish(ctx, ns, "src", "main@sha1:1", tree(stack, files))
		values := "password: " + secretValue + "\npin: " + secretPIN + "\n"
		switch {
		case reason == "InvalidStack" && template == "":
			values += "port: " + secretValue + "\n"
		case template == "{}":
			values += "\"" + secretValue + "\": [\n"
		}
		secret := privateValues(ns, values)
		if change {
			secret = privateValues(ns, "password: before\npin: 1\n")
		}
		Expect(plane.Client().Create(ctx, secret)).To(Succeed())
		in := newInstall(ctx, ns, "i", hourly, valuesFrom(appsv1.ValuesReference{Kind: "Secret", Name: "private"}))
		if change {
			atRevision(ctx, in, "main@sha1:1")
			secret.StringData = privateValues(ns, values).StringData
			Expect(plane.Client().Update(ctx, secret)).To(Succeed())
		}
		reports(ctx, in, "False", reason)
		GinkgoWriter.Println(ready(in).Message)
		Expect(ready(in).Message).NotTo(BeEmpty())
		Eventually(ctx, func() []corev1.Event {
			return eventsOf(ctx, in)
		}, soon).ShouldNot(BeEmpty(), "the failure has an event")
		for _, e := range eventsOf(ctx, in) {
			expectNoSecret("an event", e)
		}
		in.Spec = appsv1.KsctlInstallSpec{}
		expectNoSecret("the install", in)
	},
	Entry("from a failing template", `{{ fail (printf "no good: %s" .Values.password) }}`, "InvalidStack", false),
	Entry("from a schema that they violate", "", "InvalidStack", false),
	Entry("from values that can't be parsed", "{}", "InvalidStack", false),
	Entry("from a manifest that can't be parsed", "apiVersion: v1\nkind: {{ .Values.password }}: [\n", "InvalidStack",
		false),
	Entry("from an API server error about an invalid object",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {l: {{ .Values.password | quote }}}}\n",
		"ReconciliationFailed", false),
	Entry("from an API server error about a number in stringData",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {pin: {{ .Values.pin | int64 }}}\n",
		"ReconciliationFailed", false),
	Entry("from an API server error about an immutable field",
		strings.Replace(job("j", "", "", ""), "example.com/main:1\"",
			"example.com/main:1\", env: [{name: P, value: {{ .Values.password | quote }}}]", 1), "ReconciliationFailed",
		true),
)

// expectNoSecret checks that an object has no secret, neither in plain text nor in base64.
func expectNoSecret(what string, o any) {
	GinkgoHelper()
	raw, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	text := strings.ReplaceAll(string(raw), `\u0026`, "&")
	for _, s := range []string{secretValue, secretPIN, "Hunter2", "horse"} {
		Expect(text).NotTo(ContainSubstring(s), what)
		Expect(text).NotTo(ContainSubstring(base64.StdEncoding.EncodeToString([]byte(s))), what)
	}
}
