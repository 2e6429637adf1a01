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

// choose is what an install wants of components, as pairs of a name and an override.
func choose(pairs ...string) func(*appsv1.KsctlInstall) {
	return func(in *appsv1.KsctlInstall) {
		in.Spec.Components = nil
		for i := 0; i < len(pairs); i += 2 {
			in.Spec.Components = append(in.Spec.Components, appsv1.ComponentChoice{
				Name: pairs[i], Override: &apiextensionsv1.JSON{Raw: []byte(pairs[i+1])}})
		}
	}
}

// commit changes the spec of an install as a commit does.
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
	"chart/templates/title.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: title}\ndata: {title: {{ .Values.title | quote }}, subtitle: {{ .Values.subtitle | quote }}}\n",
	"chart/templates/other.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {release: {{ .Release.Name | quote }}, namespace: {{ .Release.Namespace | quote }}}\n",
	"chart/templates/web.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: {{ .Values.replicas }}\n" +
		"  selector: {matchLabels: {app: web}}" + pods("web", ""),
	"built/kustomization.yaml": "resources: [api.yaml, cm.yaml]\nnamePrefix: my-\n",
	"built/api.yaml":           deployment("api", ""),
	"built/cm.yaml":            configMap("settings", "1"),
}

var _ = Describe("Charts and kustomizations", func() {
	It("are installed as the install wants them, and a commit changes the objects that it concerns", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(shop, shopFiles))
		wants := func(title, tag string, count int) func(*appsv1.KsctlInstall) {
			return choose("chart", fmt.Sprintf(`{"values": {"title": %q}}`, title), "built", fmt.Sprintf(`{
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
			mark := marked(ctx)
			commit(ctx, in, c.change)
			becomes(ctx, in, "True", "")
			requests := since(ctx, mark, cluster.As(tenant(ns)))
			failed := requests.Where(cluster.Failed)
			// One that meets a late write of the Deployment's status costs a read and another try.
			Expect(len(requests)).To(BeNumerically("<=", 1+2*len(failed)), "one request: %s", requests)
			writes := requests.Where(cluster.Write).Without(cluster.Failed)
			Expect(writes).To(HaveLen(1), "one write: %s", requests)
			Expect(writes[0]).To(And(HaveField("Verb", "patch"), HaveField("Resource", c.resource), HaveField("Name", c.name)))
		}
		Expect(get(ctx, title)).To(Succeed())
		Expect(title.Data).To(HaveKeyWithValue("title", "changed"))
		Expect(get(ctx, api)).To(Succeed())
		Expect(api.Spec.Template.Spec.Containers[0].Image).To(Equal("example.com/main:3"))
		Expect(*api.Spec.Replicas).To(BeEquivalentTo(1))

		By("leaving a component out")
		mark := marked(ctx)
		off := false
		commit(ctx, in, wants("changed", "3", 1), func(in *appsv1.KsctlInstall) {
			in.Spec.Components[1].Enabled = &off
			in.Spec.Components[1].Override = nil
		})
		Eventually(ctx, func() bool { return absent(ctx, api) && absent(ctx, settings) }, soon).Should(BeTrue(), "it is pruned")
		becomes(ctx, in, "True", "")
		Expect(in.Status.Components).To(HaveLen(1))
		// A deletion that meets a late write of the Deployment's status is refused, and tried again.
		Expect(since(ctx, mark, cluster.As(tenant(ns)), cluster.Write).Without(cluster.Failed)).To(HaveLen(2))
	})
})

// mistake is bad input, and what the install says of it.
type mistake struct {
	// stack and files instead of those of shop.
	stack string
	files map[string]string
	// wants of the install.
	wants func(*appsv1.KsctlInstall)
	says  []string
}

// bomb is small and would be 10^9 strings.
var bomb = func() string {
	text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: bomb}\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 9; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	return text
}()

var _ = DescribeTable("Bad input is named, nothing of it is applied, and the next revision goes on at once",
	func(ctx SpecContext, m mistake) {
		ns := namespaceFor(ctx)
		files := maps.Clone(shopFiles)
		maps.Copy(files, m.files)
		if m.stack == "" {
			m.stack = shop
		}
		publish(ctx, ns, "src", "main@sha1:bad", tree(m.stack, files))
		mark := marked(ctx)
		in := newInstall(ctx, ns, "i", hourly)
		if m.wants != nil {
			commit(ctx, in, m.wants)
		}
		says(ctx, in, "False", "InvalidStack", m.says...)
		Expect(condition(in, "Stalled")).To(And(HaveField("Reason", "InvalidStack"), HaveField("Message", ready(in).Message)))
		Expect(condition(in, "Reconciling")).To(BeNil())
		Expect(in.Status.LastAttemptedRevision).To(Equal("main@sha1:bad"))
		Expect(in.Status.LastAppliedRevision).To(BeEmpty())
		if m.wants == nil {
			Expect(since(ctx, mark, cluster.As(tenant(ns)), cluster.Write)).To(BeEmpty(), "nothing is applied")
		}
		GinkgoWriter.Println(ready(in).Message)

		publish(ctx, ns, "src", "main@sha1:good", tree(shop, shopFiles))
		commit(ctx, in, choose())
		atRevision(ctx, in, "main@sha1:good")
		Expect(condition(in, "Stalled")).To(BeNil())
	},
	Entry("a misspelt field of the stack", mistake{
		stack: "spec:\n  version: 1.0.0\n  components:\n  - name: main\n    manifest: [main/]\n",
		says:  []string{"stacks/app/stack.yaml:8", `"main"`, `"manifest"`, `"manifests"`}}),
	Entry("a file that is not there", mistake{
		stack: "spec:\n  version: 1.0.0\n  components:\n  - name: main\n    manifests: [nowhere/]\n",
		says:  []string{"stacks/app/stack.yaml", "main", "nowhere"}}),
	Entry("a dependency cycle", mistake{stack: components("a:c", "b:a", "c:b"),
		files: map[string]string{"a/a.yaml": configMap("a", "1"), "b/a.yaml": configMap("b", "1"), "c/a.yaml": configMap("c", "1")},
		says:  []string{"stacks/app/stack.yaml", "cycle", "a", "b", "c"}}),
	Entry("a dependency that is not there", mistake{stack: components("database", "app:databse"),
		files: map[string]string{"database/a.yaml": configMap("a", "1"), "app/a.yaml": configMap("b", "1")},
		says:  []string{"stacks/app/stack.yaml", `"app"`, `"databse"`, `"database"`}}),
	Entry("a component of the install that the stack has not", mistake{wants: choose("chrt", `{}`), says: []string{"there is no component", `"chrt"`, `"chart"`}}),
	Entry("an override key that nobody knows", mistake{wants: choose("built", `{"imgaes": []}`), says: []string{`"built"`, "override", `"imgaes"`, `"images"`}}),
	Entry("a value of the wrong type", mistake{wants: choose("chart", `{"values": {"replicas": "three"}}`), says: []string{`"chart"`, "override", "values.replicas", "integer"}}),
	Entry("a value that the chart does not know", mistake{wants: choose("chart", `{"values": {"titel": "x"}}`), says: []string{`"chart"`, "override", "values.titel", "title"}}),
	Entry("an image that matches nothing", mistake{wants: choose("built", `{"images": [{"name": "example.com/mian", "newTag": "2"}]}`), says: []string{`"built"`, "image", "example.com/mian"}}),
	Entry("a patch that matches nothing", mistake{wants: choose("built", `{"patches": [{"target": {"kind": "Secret"}, "patch": "[]"}]}`), says: []string{`"built"`, "patch", "Secret"}}),
	Entry("replicas of nothing", mistake{wants: choose("built", `{"replicas": [{"name": "nobody", "count": 2}]}`), says: []string{`"built"`, "replica", "nobody"}}),
	Entry("an anchor bomb", mistake{stack: components("main"), files: map[string]string{"main/cm.yaml": bomb},
		says: []string{`"main"`, "stacks/app/main/cm.yaml:", "alias"}}),
	Entry("a key twice", mistake{stack: components("main"),
		files: map[string]string{"main/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: a\n  x: b\n"},
		says:  []string{`"main"`, "stacks/app/main/cm.yaml:6", `"x"`}}),
	Entry("a key twice in a kustomization", mistake{files: map[string]string{"built/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: a\n  x: b\n"},
		says: []string{`"built"`, "stacks/app/built/kustomization.yaml", `ConfigMap "my-a"`, `"x"`}}),
	Entry("a file that is not UTF-8", mistake{stack: components("main"),
		files: map[string]string{"main/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: \"\xff\xfe\"}\n"},
		says:  []string{`"main"`, "stacks/app/main/cm.yaml:4", "UTF-8"}}),
	Entry("no YAML", mistake{stack: components("main"), files: map[string]string{"main/cm.yaml": "a: [b\nc: d\n"},
		says: []string{`"main"`, "stacks/app/main/cm.yaml"}}),
	Entry("a template that fails", mistake{files: map[string]string{"chart/templates/title.yaml": "a: {{ required \"a title is needed\" .Values.nothing }}\n"},
		says: []string{`"chart"`, "title.yaml", "a title is needed"}}),
	Entry("a remote base", mistake{files: map[string]string{"built/kustomization.yaml": "resources: [https://github.com/example/base]\n"},
		says: []string{`"built"`, "stacks/app/built/kustomization.yaml", "https://github.com/example/base"}}),
)

var _ = Describe("A stack that renders nothing", func() {
	It("removes nothing: it is held until there is something again", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "1")}))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := marked(ctx)
		publish(ctx, ns, "src", "main@sha1:2", tree(oneComponent, map[string]string{"main/a.yaml": "# nothing left\n"}))
		says(ctx, in, "False", "EmptyRender", `stack "app" renders no objects`, "1 are installed", "nothing is removed")
		Expect(condition(in, "Stalled")).To(HaveField("Reason", "EmptyRender"))
		Expect(in.Status.LastAppliedRevision).To(Equal("main@sha1:1"))
		Expect(in.Status.Inventory.Entries).To(HaveLen(1))
		Consistently(ctx, func() bool { return absent(ctx, aConfigMap(ns, "a")) }, "500ms").Should(BeFalse())
		Expect(since(ctx, mark, cluster.As(tenant(ns)))).To(BeEmpty())

		publish(ctx, ns, "src", "main@sha1:3", tree(oneComponent, map[string]string{"main/b.yaml": configMap("b", "1")}))
		atRevision(ctx, in, "main@sha1:3")
		Expect(absent(ctx, aConfigMap(ns, "a"))).To(BeTrue(), "a revision that says what it wants prunes")
		Expect(absent(ctx, aConfigMap(ns, "b"))).To(BeFalse())
	})
})
