package install_test

import (
	"context"
	"fmt"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// chooseComponents sets spec.components from pairs of a component name and an override.
func chooseComponents(pairs ...string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		in.Spec.Components = nil
		for i := 0; i < len(pairs); i += 2 {
			in.Spec.Components = append(in.Spec.Components, appsv1.ComponentChoice{
				Name: pairs[i], Override: &apiextensionsv1.JSON{Raw: []byte(pairs[i+1])}})
		}
	}
}

// commit changes the spec of an install like a commit does.
func commit(ctx context.Context, in *appsv1.KsctlInstall, changes ...func(*appsv1.KsctlInstall)) {
	GinkgoHelper()
	Expect(get(ctx, in)).To(Succeed())
	before := in.DeepCopy()
	for _, f := range changes {
		f(in)
	}
	Expect(plane.Client().Patch(ctx, in, client.MergeFrom(before))).To(Succeed())
}

// shop is a stack of a chart and a kustomization.
const shop = `spec:
  version: 2.0.0
  components:
  - name: chart
    helm: {chart: ./chart, releaseName: shop, values: {title: stack}}
  - name: built
    dependsOn: [chart]
    kustomize: {path: ./built}
`

var shopFiles = map[string]string{
	"chart/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.2.3\n",
	"chart/values.yaml": "title: chart\nsubtitle: chart\nreplicas: 1\n",
	"chart/values.schema.json": `{"type": "object", "additionalProperties": false, "properties": {"global": {},
		"title": {"type": "string"}, "subtitle": {"type": "string"}, "replicas": {"type": "integer"}}}`,
	"chart/templates/title.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: title}\ndata: {title: {{ " +
		".Values.title | quote }}, subtitle: {{ .Values.subtitle | quote }}}\n",
	"chart/templates/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {release: {{ " +
		".Release.Name | quote }}, namespace: {{ .Release.Namespace | quote }}}\n",
	"chart/templates/web.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: {{ " +
		".Values.replicas }}\n" +
		"  selector: {matchLabels: {app: web}}" + pods("web", ""),
	"built/kustomization.yaml": "resources: [api.yaml, cm.yaml]\nnamePrefix: my-\n",
	"built/api.yaml":           deployment("api", ""),
	"built/cm.yaml":            configMap("settings", "1"),
}

var _ = Describe("Charts and kustomizations", func() {
	It("are installed with the overrides of the install, and a commit changes only the affected "+
		"objects", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(shop, shopFiles))
		wants := func(title, tag string, count int) func(*appsv1.KsctlInstall) {
			return chooseComponents("chart", fmt.Sprintf(`{"values": {"title": %q}}`, title), "built", fmt.Sprintf(`{
				"images": [{"name": "example.com/main", "newTag": %q}], "replicas": [{"name": "my-api", "count": %d}],
				"patches": [{"target": {"kind": "ConfigMap"}, "patch": "[{\"op\": \"add\", \"path\": \"/data/patched\", \"value\": \"yes\"}]"}]}`, tag, count))
		}
		in := newInstall(ctx, ns, "i", hourly, wants("install", "2", 2))
		atRevision(ctx, in, "main@sha1:1")
		title, other, settings := aConfigMap(ns, "title"), aConfigMap(ns, "other"), aConfigMap(ns, "my-settings")
		api, web := aDeployment(ns, "my-api"), aDeployment(ns, "web")
		for _, o := range []client.Object{title, other, settings, api, web} {
			Expect(get(ctx, o)).To(Succeed(), o.GetName())
		}
		Expect(title.Data).To(Equal(map[string]string{"title": "install", "subtitle": "chart"}))
		Expect(other.Data).To(Equal(map[string]string{"release": "shop", "namespace": ns}))
		Expect(settings.Data).To(Equal(map[string]string{"value": "1", "patched": "yes"}))
		Expect(api.Spec.Template.Spec.Containers[0].Image).To(Equal("example.com/main:2"))
		Expect(*api.Spec.Replicas).To(BeEquivalentTo(2))
		Expect(in.Status.StackVersion).To(Equal("2.0.0"))
		Expect(component(in, "chart")).To(And(HaveField("Version", "1.2.3"), HaveField("Objects", BeEquivalentTo(3))))

		for _, c := range []struct {
			what, resource, name string
			change               func(*appsv1.KsctlInstall)
		}{
			{"a value", "configmaps", "title", wants("changed", "2", 2)},
			{"an image", "deployments", "my-api", wants("changed", "3", 2)},
			{"replicas", "deployments", "my-api", wants("changed", "3", 1)},
		} {
			By("changing " + c.what)
			mark := auditMark(ctx)
			commit(ctx, in, c.change)
			becomes(ctx, in, "True", "")
			requests := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)))
			failed := requests.Where(cluster.Failed)
			// A write that conflicts with a late status write costs a read and a retry.
			Expect(len(requests)).To(BeNumerically("<=", 1+2*len(failed)), "one request: %s", requests)
			writes := requests.Where(cluster.Write).Without(cluster.Failed)
			Expect(writes).To(HaveLen(1), "one write: %s", requests)
			Expect(writes[0]).
				To(And(HaveField("Verb", "patch"), HaveField("Resource", c.resource), HaveField("Name", c.name)))
		}
		Expect(get(ctx, title)).To(Succeed())
		Expect(title.Data).To(HaveKeyWithValue("title", "changed"))
		Expect(get(ctx, api)).To(Succeed())
		Expect(api.Spec.Template.Spec.Containers[0].Image).To(Equal("example.com/main:3"))
		Expect(*api.Spec.Replicas).To(BeEquivalentTo(1))

		By("disabling a component")
		mark := auditMark(ctx)
		off := false
		commit(ctx, in, wants("changed", "3", 1), func(in *appsv1.KsctlInstall) {
			in.Spec.Components[1].Enabled = &off
			in.Spec.Components[1].Override = nil
		})
		Eventually(ctx, func() bool {
			return absent(ctx, api) && absent(ctx, settings)
		}, soon).Should(BeTrue(), "its objects are pruned")
		becomes(ctx, in, "True", "")
		Expect(in.Status.Components).To(HaveLen(1))
		// A deletion that conflicts with a late status write is rejected and retried.
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write).Without(cluster.Failed)).
			To(HaveLen(2))
	})
})

// badInput is an invalid stack or install, and the texts that the install must report.
type badInput struct {
	// stack and files replace those of shop.
	stack string
	files map[string]string
	// change of the install.
	change   func(*appsv1.KsctlInstall)
	messages []string
}

// bomb is a small document that would expand to 10^9 strings.
var bomb = func() string {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	return text
}()

var _ = DescribeTable("Invalid input is reported, nothing of it is applied, and the next revision is applied at once",
	func(ctx SpecContext, m badInput) {
		ns := namespaceFor(ctx)
		files := maps.Clone(shopFiles)
		maps.Copy(files, m.files)
		if m.stack == "" {
			m.stack = shop
		}
		publish(ctx, ns, "src", "main@sha1:bad", tree(m.stack, files))
		mark := auditMark(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		if m.change != nil {
			commit(ctx, in, m.change)
		}
		reports(ctx, in, "False", "InvalidStack", m.messages...)
		Expect(condition(in, "Stalled")).
			To(And(HaveField("Reason", "InvalidStack"), HaveField("Message", ready(in).Message)))
		Expect(condition(in, "Reconciling")).To(BeNil())
		Expect(in.Status.LastAttemptedRevision).To(Equal("main@sha1:bad"))
		Expect(in.Status.LastAppliedRevision).To(BeEmpty())
		if m.change == nil {
			Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)).
				To(BeEmpty(), "nothing is applied")
		}
		GinkgoWriter.Println(ready(in).Message)

		publish(ctx, ns, "src", "main@sha1:good", tree(shop, shopFiles))
		commit(ctx, in, chooseComponents())
		atRevision(ctx, in, "main@sha1:good")
		Expect(condition(in, "Stalled")).To(BeNil())
	},
	Entry("a misspelled field of the stack", badInput{
		stack:    "spec:\n  version: 1.0.0\n  components:\n  - name: main\n    manifest: [main/]\n",
		messages: []string{"stacks/app/stack.yaml:8", `"main"`, `"manifest"`, `"manifests"`}}),
	Entry("a missing file", badInput{
		stack:    "spec:\n  version: 1.0.0\n  components:\n  - name: main\n    manifests: [nowhere/]\n",
		messages: []string{"stacks/app/stack.yaml", "main", "nowhere"}}),
	Entry("a dependency cycle", badInput{stack: components("a:c", "b:a", "c:b"),
		files: map[string]string{"a/a.yaml": configMap("a", "1"), "b/a.yaml": configMap("b", "1"),
			"c/a.yaml": configMap("c", "1")},
		messages: []string{"stacks/app/stack.yaml", "cycle", "a", "b", "c"}}),
	Entry("a missing dependency", badInput{stack: components("database", "app:databse"),
		files:    map[string]string{"database/a.yaml": configMap("a", "1"), "app/a.yaml": configMap("b", "1")},
		messages: []string{"stacks/app/stack.yaml", `"app"`, `"databse"`, `"database"`}}),
	Entry("a component of the install that is not in the stack",
		badInput{change: chooseComponents("chrt", `{}`),
			messages: []string{"there is no component", `"chrt"`, `"chart"`}}),
	Entry("an unknown override key",
		badInput{change: chooseComponents("built", `{"imgaes": []}`),
			messages: []string{`"built"`, "override", `"imgaes"`, `"images"`}}),
	Entry("a value of the wrong type", badInput{change: chooseComponents("chart", `{"values": {"replicas": "three"}}`),
		messages: []string{`"chart"`, "override", "values.replicas", "integer"}}),
	Entry("a value that the chart's schema does not have",
		badInput{change: chooseComponents("chart", `{"values": {"titel": "x"}}`),
			messages: []string{`"chart"`, "override", "values.titel", "title"}}),
	Entry("an image that matches nothing",
		badInput{change: chooseComponents("built", `{"images": [{"name": "example.com/mian", "newTag": "2"}]}`),
			messages: []string{`"built"`, "image", "example.com/mian"}}),
	Entry("a patch that matches nothing",
		badInput{change: chooseComponents("built", `{"patches": [{"target": {"kind": "Secret"}, "patch": "[]"}]}`),
			messages: []string{`"built"`, "patch", "Secret"}}),
	Entry("replicas that match nothing",
		badInput{change: chooseComponents("built", `{"replicas": [{"name": "nobody", "count": 2}]}`),
			messages: []string{`"built"`, "replica", "nobody"}}),
	Entry("an anchor bomb", badInput{stack: components("main"), files: map[string]string{"main/cm.yaml": bomb},
		messages: []string{`"main"`, "stacks/app/main/cm.yaml:", "alias"}}),
	Entry("a duplicate key", badInput{stack: components("main"),
		files: map[string]string{"main/cm.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: a}\ndata:\n  x: a\n  x: b\n"},
		messages: []string{`"main"`, "stacks/app/main/cm.yaml:6", `"x"`}}),
	Entry("a duplicate key in a "+
		"kustomization", badInput{files: map[string]string{"built/cm.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
		"metadata: {name: a}\ndata:\n  x: a\n  x: b\n"},
		messages: []string{`"built"`, "stacks/app/built/kustomization.yaml", `ConfigMap "my-a"`, `"x"`}}),
	Entry("a file that is not UTF-8", badInput{stack: components("main"),
		files: map[string]string{"main/cm.yaml": "apiVersion: v1\nkind: ConfigMap\n" +
			"metadata: {name: a}\ndata: {x: \"\xff\xfe\"}\n"},
		messages: []string{`"main"`, "stacks/app/main/cm.yaml:4", "UTF-8"}}),
	Entry("invalid YAML", badInput{stack: components("main"), files: map[string]string{"main/cm.yaml": "a: [b\nc: d\n"},
		messages: []string{`"main"`, "stacks/app/main/cm.yaml"}}),
	Entry("a failing "+
		"template", badInput{files: map[string]string{"chart/templates/title.yaml": "a: {{ required \"a title is " +
		"needed\" .Values.nothing }}\n"},
		messages: []string{`"chart"`, "title.yaml", "a title is needed"}}),
	Entry("a remote base", badInput{files: map[string]string{"built/kustomization.yaml": "resources: " +
		"[https://github.com/example/base]\n"},
		messages: []string{`"built"`, "stacks/app/built/kustomization.yaml", "https://github.com/example/base"}}),
)

var _ = Describe("A stack that renders nothing", func() {
	It("removes nothing, and the install waits for a revision with objects", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		publish(ctx, ns, "src", "main@sha1:2", tree(oneComponent, map[string]string{"main/a.yaml": "# nothing left\n"}))
		reports(ctx, in, "False", "EmptyRender", `stack "app" renders no objects`, "1 objects are installed",
			"no objects are removed")
		Expect(condition(in, "Stalled")).To(HaveField("Reason", "EmptyRender"))
		Expect(in.Status.LastAppliedRevision).To(Equal("main@sha1:1"))
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "a")) }, "500ms").Should(BeFalse())
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)))).To(BeEmpty())

		publish(ctx, ns, "src", "main@sha1:3",
			tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		atRevision(ctx, in, "main@sha1:3")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue(), "a revision with objects prunes")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse())
	})
})
