package install_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// web is a Deployment with an image, an argument and a number of replicas.
func web(image, arg string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "example.com/main:%s", args: [serve, "%s", --quiet]}
      - {name: side, image: "example.com/side:1"}
`, replicas, image, arg)
}

// twoValues is a ConfigMap of which one value is to be ignored.
func twoValues(name, value, x string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q, x: %q}\n", name, value, x)
}

func ignoring(paths ...string) func(*appsv1.KsctlInstall) {
	return drifting(appsv1.Drift{Ignore: []appsv1.IgnoreRule{{Paths: paths}}})
}

// scaled waits until the Deployment web has a number of replicas in its spec.
func scaled(ctx context.Context, ns string, replicas int32) {
	GinkgoHelper()
	Eventually(ctx, func() (int32, error) {
		d := aDeployment(ns, "web")
		err := get(ctx, d)
		if err != nil || d.Spec.Replicas == nil {
			return 0, err
		}
		return *d.Spec.Replicas, nil
	}, soon, "20ms").Should(Equal(replicas), "replicas of web")
}

func images(ctx context.Context, ns string) string {
	GinkgoHelper()
	d := aDeployment(ns, "web")
	Expect(get(ctx, d)).To(Succeed())
	var out []string
	for _, c := range d.Spec.Template.Spec.Containers {
		out = append(out, c.Name+"="+strings.TrimPrefix(c.Image, "example.com/")+strings.Join(c.Args, ","))
	}
	return strings.Join(out, " ")
}

var _ = Describe("Replicas that somebody scaled", func() {
	It("stay as kubectl scale set them, whatever is applied later", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", web("1", "a", 1))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := marked(ctx)
		kubectl(ctx, ns, "", "scale", "deployment/web", "--replicas=3")
		noWrites(ctx, ns, mark, "scaling is no drift")
		scaled(ctx, ns, 3)
		for i, next := range []string{web("2", "a", 1), web("2", "a", 2)} {
			stack(ctx, ns, fmt.Sprintf("main@sha1:%d", i+2), next)
			atRevision(ctx, in, fmt.Sprintf("main@sha1:%d", i+2))
			scaled(ctx, ns, 3)
			Expect(images(ctx, ns)).To(HavePrefix("main=main:2"))
		}
		mark = marked(ctx)
		kubectl(ctx, ns, "", "scale", "deployment/web", "--replicas=0")
		noWrites(ctx, ns, mark, "scaling is no drift")
		stack(ctx, ns, "main@sha1:4", web("3", "a", 2))
		atRevision(ctx, in, "main@sha1:4")
		scaled(ctx, ns, 0)

		By("another manager that writes the field itself")
		Expect(patch(ctx, aDeployment(ns, "web"), "mallory", `{"spec":{"replicas":5}}`)).To(Succeed())
		scaled(ctx, ns, 2)
	})

	It("stay as a HorizontalPodAutoscaler set them", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		hpa := `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 6
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`
		stack(ctx, ns, "main@sha1:1", web("1", "a", 1))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		Expect(plane.ApplyYAML(ctx, []byte(strings.Replace(hpa, "{name: web}", "{name: web, namespace: "+ns+"}", 1)))).To(Succeed())
		mark := marked(ctx)
		scaled(ctx, ns, 2) // the real one brings it to its minimum
		Expect(get(ctx, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}})).To(Succeed())
		d := aDeployment(ns, "web")
		Expect(get(ctx, d)).To(Succeed())
		Expect(plane.Client().SubResource("scale").Patch(ctx, d, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`)),
			client.FieldOwner("kube-controller-manager"))).To(Succeed()) // as it would with metrics
		noWrites(ctx, ns, mark, "scaling is no drift")
		stack(ctx, ns, "main@sha1:2", web("2", "a", 1))
		atRevision(ctx, in, "main@sha1:2")
		scaled(ctx, ns, 4)
	})
})

var _ = Describe("Fields that drift.ignore names", func() {
	It("are sent once and others' from then on, while the rest is put right", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", twoValues("a", "1", "1"))
		in := newInstall(ctx, ns, "i", hourly, ignoring("/data/x", "/metadata/annotations/example.com~1note"))
		atRevision(ctx, in, "main@sha1:1")
		data := func() map[string]string { return seen(ctx, ns, "a").Data }
		Expect(data()).To(Equal(map[string]string{"value": "1", "x": "1"}), "both are sent")

		By("Git changes it while nobody else has it")
		stack(ctx, ns, "main@sha1:2", twoValues("a", "2", "2"))
		atRevision(ctx, in, "main@sha1:2")
		Expect(data()).To(Equal(map[string]string{"value": "2", "x": "1"}), "it keeps the value that it has")

		By("another writer changes it")
		mark := marked(ctx)
		Expect(merge(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		noWrites(ctx, ns, mark, "it is theirs to change")
		Expect(merge(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Eventually(ctx, data, soon, "10ms").Should(Equal(map[string]string{"value": "2", "x": "theirs"}), "the other field is put right, and that alone")
		stack(ctx, ns, "main@sha1:3", twoValues("a", "3", "3"))
		atRevision(ctx, in, "main@sha1:3")
		Expect(data()).To(Equal(map[string]string{"value": "3", "x": "theirs"}))

		By("another writer takes it out")
		mark = marked(ctx)
		Expect(merge(`{"data":{"x":null}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		noWrites(ctx, ns, mark, "it is theirs to take out")
		stack(ctx, ns, "main@sha1:4", twoValues("a", "4", "4"))
		atRevision(ctx, in, "main@sha1:4")
		Expect(data()).To(Equal(map[string]string{"value": "4"}))

		By("the rule goes")
		Expect(merge(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Drift = nil })
		Eventually(ctx, data, soon, "10ms").Should(Equal(map[string]string{"value": "4", "x": "4"}), "it is Git's again")
		Expect(merge(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Eventually(ctx, data, soon, "10ms").Should(Equal(map[string]string{"value": "4", "x": "4"}), "it is put right")
	})

	It("are kept inside lists, and as a map", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", web("1", "a", 1), twoValues("a", "1", "1"))
		in := newInstall(ctx, ns, "i", hourly, drifting(appsv1.Drift{Ignore: []appsv1.IgnoreRule{
			{Target: &appsv1.IgnoreTarget{Kind: "Deployment"}, Paths: []string{"/spec/replicas", "/spec/template/spec/containers/0/args/1", "/spec/template/spec/containers/1/image"}},
			{Target: &appsv1.IgnoreTarget{Kind: "ConfigMap", Name: "a"}, Paths: []string{"/data"}}}}))
		atRevision(ctx, in, "main@sha1:1")
		mark := marked(ctx)
		Expect(patch(ctx, aDeployment(ns, "web"), "mallory", `{"spec":{"replicas":3}}`)).To(Succeed())
		kubectl(ctx, ns, "", "set", "image", "deployment/web", "side=example.com/side:theirs")
		kubectl(ctx, ns, "", "patch", "deployment/web", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"main","args":["serve","theirs","--quiet"]}]}}}}`)
		Expect(merge(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		noWrites(ctx, ns, mark, "all of it is theirs to change")

		stack(ctx, ns, "main@sha1:2", web("2", "b", 2), strings.Replace(twoValues("a", "2", "2"), "{name: a}", "{name: a, labels: {new: \"yes\"}}", 1))
		atRevision(ctx, in, "main@sha1:2")
		Expect(images(ctx, ns)).To(Equal("main=main:2serve,theirs,--quiet side=side:theirs"))
		scaled(ctx, ns, 3)
		a := seen(ctx, ns, "a")
		Expect(a.Data).To(Equal(map[string]string{"value": "1", "x": "theirs"}), "what is ours of it stays, too")
		Expect(a.Labels).To(HaveKeyWithValue("new", "yes"))

		Expect(patch(ctx, aDeployment(ns, "web"), "mallory", `{"spec":{"paused":true,"minReadySeconds":3}}`)).To(Succeed())
		kubectl(ctx, ns, "", "set", "image", "deployment/web", "main=example.com/main:theirs")
		Eventually(ctx, func() string { return images(ctx, ns) }, soon, "10ms").Should(
			Equal("main=main:2serve,theirs,--quiet side=side:theirs"), "the rest is put right")
	})

	It("are never set back by an apply that was on its way when they changed", func(ctx SpecContext) {
		const objects = 100
		ns := namespaceFor(ctx)
		name := func(i int) string { return fmt.Sprintf("c%02d", i) }
		all := func(value string) (docs []string) {
			for i := range objects {
				docs = append(docs, twoValues(name(i), value, "1"))
			}
			return docs
		}
		stack(ctx, ns, "main@sha1:1", all("1")...)
		in := newInstall(ctx, ns, "i", hourly, ignoring("/data/x"))
		atRevision(ctx, in, "main@sha1:1")
		stack(ctx, ns, "main@sha1:2", all("2")...)
		Eventually(ctx, func() string { return seen(ctx, ns, name(0)).Data["value"] }, soon, time.Millisecond).Should(Equal("2"))
		for i := objects - 1; i >= 0; i-- {
			Expect(merge(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, name(i)))).To(Succeed())
		}
		atRevision(ctx, in, "main@sha1:2")
		for i := range objects {
			Expect(seen(ctx, ns, name(i)).Data).To(Equal(map[string]string{"value": "2", "x": "theirs"}), name(i))
		}
	})

	It("may be what our marks are in", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", twoValues("a", "1", "1"))
		in := newInstall(ctx, ns, "i", hourly, ignoring("/metadata/annotations", "/metadata/labels"))
		atRevision(ctx, in, "main@sha1:1")
		kubectl(ctx, ns, "", "annotate", "configmap/a", "note=theirs")
		Expect(merge(`{"metadata":{"annotations":null,"labels":null}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Eventually(ctx, func() map[string]string { return seen(ctx, ns, "a").Annotations }, soon, "20ms").Should(HaveKey(live.MarkAnnotation))
		stack(ctx, ns, "main@sha1:2", twoValues("a", "2", "1"))
		atRevision(ctx, in, "main@sha1:2")
		belongs(seen(ctx, ns, "a"), in)
		removed(ctx, in)
		Expect(absent(ctx, &corev1.ConfigMap{ObjectMeta: named(ns, "a")})).To(BeTrue())
	})
})
