package install_test

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsapi "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// parameterized is a stack with a component of each of the three forms. Each has a Deployment and a
// Secret with parameters that may come from ConfigMaps and Secrets.
func parameterized() (stack string, files map[string]string) {
	stack = `spec:
  version: 1.0.0
  parameters:
    schema:
      properties:
        image: {type: string, default: none}
        password: {type: string, default: none}
        license: {type: string, sensitive: false, default: none}
  components:
`
	const object = `apiVersion: apps/v1
kind: Deployment
metadata: {name: FORM}
spec:
  replicas: 0
  selector: {matchLabels: {app: FORM}}
  template:
    metadata: {labels: {app: FORM}, annotations: {license: none}}
    spec: {containers: [{name: app, image: none}]}
---
apiVersion: v1
kind: Secret
metadata: {name: FORM}
stringData: {password: none}
`
	const fields = `
    fields:
    - {target: {kind: Deployment}, path: "spec.template.spec.containers.[name=app].image", value: stack.image}
    - {target: {kind: Deployment}, path: spec.template.metadata.annotations.license, value: stack.license}
    - {target: {kind: Secret}, path: stringData.password, value: stack.password}
`
	files = map[string]string{"k/kustomization.yaml": "resources: [k.yaml]\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n"}
	for form, source := range map[string][2]string{"manifests": {"manifests: [m.yaml]", "m.yaml"},
		"kustomize": {"kustomize: {path: k}", "k/k.yaml"},
		"helm":      {"helm: {chart: ./chart}", "chart/templates/h.yaml"}} {
		stack += "  - name: " + form + "\n    " + source[0] + fields
		files[source[1]] = strings.ReplaceAll(object, "FORM", form)
	}
	return stack, files
}

var componentKinds = []string{"manifests", "kustomize", "helm"}

// awaitParameters waits until the objects of each form have the parameters, as image, license and
// password.
func awaitParameters(ctx context.Context, ns string, want [3]string) {
	GinkgoHelper()
	for _, form := range componentKinds {
		Eventually(ctx, func() ([3]string, error) {
			d := &appsapi.Deployment{ObjectMeta: objectMeta(ns, form)}
			s := &corev1.Secret{ObjectMeta: objectMeta(ns, form)}
			if err := get(ctx, d); err != nil {
				return [3]string{}, err
			}
			err := get(ctx, s)
			template := d.Spec.Template
			return [3]string{template.Spec.Containers[0].Image, template.Annotations["license"],
				string(s.Data["password"])}, err
		}, soon, 10*time.Millisecond).Should(Equal(want), "the parameters reach the objects of %s", form)
	}
}

var parameterPassword = scanner.AddSecret("Stall%correct&horse")

var _ = Describe("Parameters", func() {
	It("from a ConfigMap and a Secret reach components of every form, wait for what is missing, and change at once",
		func(ctx SpecContext) {
			ns := namespaceFor(ctx)
			publish(ctx, ns, "src", "main@sha1:1", tree(parameterized()))
			settings := aConfigMap(ns, "site")
			settings.Data = map[string]string{"image": "example.com/app:1", "other": "x"}
			Expect(plane.Client().Create(ctx, settings)).To(Succeed())
			mark := auditMark(ctx)
			in := newInstall(ctx, ns, "i", hourly, func(in *appsv1.KsctlInstall) {
				in.Spec.ParametersFrom = []appsv1.ParametersReference{{Kind: "ConfigMap", Name: "site"},
					{Kind: "Secret", Name: "shop", Key: "secret", TargetPath: "password"},
					{Kind: "Secret", Name: "shop", Key: "license", TargetPath: "license", Optional: true}}
			})
			reports(ctx, in, "False", "ValuesNotFound", `parametersFrom Secret "shop"`, `parameter "password"`,
				"the object does not exist")
			Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)).
				To(BeEmpty(), "nothing is applied in part")

			shop := &corev1.Secret{ObjectMeta: objectMeta(ns, "shop"),
				StringData: map[string]string{"secret": parameterPassword}}
			Expect(plane.Client().Create(ctx, shop)).To(Succeed())
			awaitParameters(ctx, ns, [3]string{"example.com/app:1", "none", parameterPassword})
			Eventually(ctx, func() ([]string, error) {
				err := get(ctx, in)
				return in.Status.Warnings, err
			}, soon).Should(ConsistOf(ContainSubstring(`ConfigMap site, key "other"`)), "one warning of the unknown key")

			By("changing the ConfigMap")
			settings.Data["image"] = "example.com/app:2"
			mark = auditMark(ctx)
			Expect(plane.Client().Update(ctx, settings)).To(Succeed())
			awaitParameters(ctx, ns, [3]string{"example.com/app:2", "none", parameterPassword})
			writes := requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
			Expect(writes).To(HaveLen(len(componentKinds)), "only the Deployments: %s", writes)

			By("changing the Secret, for a Secret and, as it is not sensitive, for a Deployment")
			shop.StringData = map[string]string{"secret": parameterPassword + "2", "license": "L-1"}
			Expect(plane.Client().Update(ctx, shop)).To(Succeed())
			awaitParameters(ctx, ns, [3]string{"example.com/app:2", "L-1", parameterPassword + "2"})

			By("changing what is no parameter")
			mark = auditMark(ctx)
			shop.StringData = map[string]string{"more": "x"}
			Expect(plane.Client().Update(ctx, shop)).To(Succeed())
			settings.Labels = map[string]string{"a": "b"}
			Expect(plane.Client().Update(ctx, settings)).To(Succeed())
			Consistently(ctx, func() cluster.Requests {
				return requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)
			}, time.Second, 200*time.Millisecond).Should(BeEmpty(), "nothing that the stack uses has changed")
		})
})
