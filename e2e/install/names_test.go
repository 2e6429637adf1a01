package install_test

import (
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsapi "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// namedStack has a component of each form. Each has the objects of prefixedObjects in its own
// namespace, and takes its values from parameters.
const namedStack = `spec:
  version: 1.0.0
  parameters:
    schema:
      properties:
        size: {type: integer, default: 2}
        text: {type: string, default: plain}
  commonMetadata: {labels: {from: stack}}
  components:
  - name: plain
    manifests: [plain/]
    namePrefix: plain-
    variables: &variables {text: {expr: stack.text}}
    fields: &fields [{target: {kind: Deployment}, path: spec.replicas, value: stack.size}]
  - {name: built, kustomize: {path: built}, namePrefix: {expr: name + '-'}, variables: *variables, fields: *fields}
  - {name: chart, helm: {chart: chart}, variables: *variables, fields: *fields, commonMetadata: {labels: {from: component}}}
`

func prefixedObjects() string {
	return `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      serviceAccountName: web
      containers: [{name: app, image: example.com/app, args: ["${text}"], envFrom: [{configMapRef: {name: web}}]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {text: "${text}", escaped: "$${text}"}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
`
}

var _ = Describe("Parameters in objects", func() {
	It("reach variables, fields and names of each form, and change nothing else", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(namedStack, map[string]string{
			"plain/all.yaml":           prefixedObjects(),
			"built/all.yaml":           prefixedObjects(),
			"built/kustomization.yaml": "resources: [all.yaml]\n",
			"more/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
				"configMapGenerator: [{name: web, behavior: merge, literals: [more=yes]}]\n",
			"chart/Chart.yaml":         "apiVersion: v2\nname: web\nversion: 1.0.0\n",
			"chart/templates/all.yaml": prefixedObjects(),
		}))
		const hostile = "a: \"b\"\n- {{ .c }} ${text} 'd"
		parameters, err := json.Marshal(map[string]any{"text": hostile, "size": 0})
		Expect(err).NotTo(HaveOccurred())
		in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) {
			in.Spec.Parameters = &apiextensionsv1.JSON{Raw: parameters}
			in.Spec.CommonMetadata = &appsv1.CommonMetadata{Annotations: map[string]string{"team": "shop"}}
			in.Spec.Components = []appsv1.ComponentChoice{
				{Name: "plain", NameSuffix: "-v2"},
				{Name: "built", KustomizeComponents: []string{"../more"}},
			}
		})
		atRevision(ctx, in, "main@sha1:1")
		for name, from := range map[string]string{"plain-web-v2": "stack", "i-web": "stack", "web": "component"} {
			config := getConfigMap(ctx, ns, name)
			Expect(config.Data).To(HaveKeyWithValue("text", hostile), name)
			Expect(config.Data).To(HaveKeyWithValue("escaped", "${text}"), name)
			Expect(config.Labels).To(HaveKeyWithValue("from", from), name)
			Expect(config.Annotations).To(HaveKeyWithValue("team", "shop"), name)
			deployment := &appsapi.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
			Expect(get(ctx, deployment)).To(Succeed())
			Expect(*deployment.Spec.Replicas).To(BeZero(), name)
			pod := deployment.Spec.Template
			Expect(pod.Labels).To(Equal(map[string]string{"app": "web"}), name)
			Expect(pod.Spec.ServiceAccountName).To(Equal(name))
			Expect(pod.Spec.Containers).To(HaveLen(1))
			Expect(pod.Spec.Containers[0].Args).To(Equal([]string{hostile}), name)
			Expect(pod.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name).To(Equal(name))
		}
		Expect(getConfigMap(ctx, ns, "i-web").Data).To(HaveKeyWithValue("more", "yes"))

		By("another prefix: the objects are replaced")
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Components[0].NamePrefix = "other-" })
		Eventually(ctx, func() error { return get(ctx, aConfigMap(ns, "plain-web-v2")) }, soon, "20ms").
			Should(MatchError(apierrors.IsNotFound, "IsNotFound"), "the old one is pruned")
		Expect(getConfigMap(ctx, ns, "other-web-v2").Data).To(HaveKeyWithValue("text", hostile))
	})
})
