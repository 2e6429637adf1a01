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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
)

// web returns a Deployment with an image, an argument and a number of replicas.
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

// twoValues returns a ConfigMap with a value, and a value x that drift.ignore covers.
func twoValues(name, value, x string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q, x: %q}\n", name,
		value, x)
}

func ignorePaths(paths ...string) func(*appsv1.KsctlInstall) {
	return withDrift(appsv1.Drift{Ignore: []appsv1.IgnoreRule{{Paths: paths}}})
}

// awaitReplicas waits until the spec of the Deployment web has a number of replicas.
func awaitReplicas(ctx context.Context, ns string, replicas int32) {
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

var _ = Describe("Scaled replicas", func() {
	It("stay as kubectl scale set them, also after later applies", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", web("1", "a", 1))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		kubectl(ctx, ns, "", "scale", "deployment/web", "--replicas=3")
		expectNoWrites(ctx, ns, mark, "scaling is no drift")
		awaitReplicas(ctx, ns, 3)
		for i, next := range []string{web("2", "a", 1), web("2", "a", 2)} {
			stack(ctx, ns, fmt.Sprintf("main@sha1:%d", i+2), next)
			atRevision(ctx, in, fmt.Sprintf("main@sha1:%d", i+2))
			awaitReplicas(ctx, ns, 3)
			Expect(images(ctx, ns)).To(HavePrefix("main=main:2"))
		}
		mark = auditMark(ctx)
		kubectl(ctx, ns, "", "scale", "deployment/web", "--replicas=0")
		expectNoWrites(ctx, ns, mark, "scaling is no drift")
		stack(ctx, ns, "main@sha1:4", web("3", "a", 2))
		atRevision(ctx, in, "main@sha1:4")
		awaitReplicas(ctx, ns, 0)

		By("another manager writing the field without the scale subresource")
		Expect(patch(ctx, aDeployment(ns, "web"), "mallory", `{"spec":{"replicas":5}}`)).To(Succeed())
		awaitReplicas(ctx, ns, 2)
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
		Expect(plane.ApplyYAML(ctx, []byte(strings.Replace(hpa, "{name: web}", "{name: web, namespace: "+ns+"}", 1)))).
			To(Succeed())
		mark := auditMark(ctx)
		awaitReplicas(ctx, ns, 2) // the HorizontalPodAutoscaler of the control plane scales to its minimum
		Expect(get(ctx,
			&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}})).
			To(Succeed())
		d := aDeployment(ns, "web")
		Expect(get(ctx, d)).To(Succeed())
		Expect(plane.Client().SubResource("scale").Patch(ctx, d,
			client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":4}}`)),
			// as the HorizontalPodAutoscaler would with metrics
			client.FieldOwner("kube-controller-manager"))).To(Succeed())
		expectNoWrites(ctx, ns, mark, "scaling is no drift")
		stack(ctx, ns, "main@sha1:2", web("2", "a", 1))
		atRevision(ctx, in, "main@sha1:2")
		awaitReplicas(ctx, ns, 4)
	})
})

var _ = Describe("Fields in drift.ignore", func() {
	It("are applied once and then left to other writers, while other fields are corrected", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", twoValues("a", "1", "1"))
		in := newInstall(ctx, ns, "i", hourly, ignorePaths("/data/x", "/metadata/annotations/example.com~1note"))
		atRevision(ctx, in, "main@sha1:1")
		data := func() map[string]string { return getConfigMap(ctx, ns, "a").Data }
		Expect(data()).To(Equal(map[string]string{"value": "1", "x": "1"}), "both are applied")

		By("a change in Git while no other writer has changed the field")
		stack(ctx, ns, "main@sha1:2", twoValues("a", "2", "2"))
		atRevision(ctx, in, "main@sha1:2")
		Expect(data()).To(Equal(map[string]string{"value": "2", "x": "1"}), "the field keeps its current value")

		By("a change by another writer")
		mark := auditMark(ctx)
		Expect(mergePatch(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		expectNoWrites(ctx, ns, mark, "a change by another writer stays")
		Expect(mergePatch(`{"data":{"value":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Eventually(ctx, data, soon, "10ms").Should(Equal(map[string]string{"value": "2", "x": "theirs"}),
			"only the other field is corrected")
		stack(ctx, ns, "main@sha1:3", twoValues("a", "3", "3"))
		atRevision(ctx, in, "main@sha1:3")
		Expect(data()).To(Equal(map[string]string{"value": "3", "x": "theirs"}))

		By("a removal by another writer")
		mark = auditMark(ctx)
		Expect(mergePatch(`{"data":{"x":null}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		expectNoWrites(ctx, ns, mark, "a removal by another writer stays")
		stack(ctx, ns, "main@sha1:4", twoValues("a", "4", "4"))
		atRevision(ctx, in, "main@sha1:4")
		Expect(data()).To(Equal(map[string]string{"value": "4"}))

		By("removing the rule")
		Expect(mergePatch(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		edit(ctx, in, func(in *appsv1.KsctlInstall) { in.Spec.Drift = nil })
		Eventually(ctx, data, soon, "10ms").Should(Equal(map[string]string{"value": "4", "x": "4"}),
			"the field has the value in Git again")
		Expect(mergePatch(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Eventually(ctx, data, soon, "10ms").Should(Equal(map[string]string{"value": "4", "x": "4"}),
			"drift of the field is corrected again")
	})

	It("may be list items or a whole map", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", web("1", "a", 1), twoValues("a", "1", "1"))
		in := newInstall(ctx, ns, "i", hourly, withDrift(appsv1.Drift{Ignore: []appsv1.IgnoreRule{
			{Target: &appsv1.IgnoreTarget{Kind: "Deployment"},
				Paths: []string{"/spec/replicas", "/spec/template/spec/containers/0/args/1",
					"/spec/template/spec/containers/1/image"}},
			{Target: &appsv1.IgnoreTarget{Kind: "ConfigMap", Name: "a"}, Paths: []string{"/data"}}}}))
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		Expect(patch(ctx, aDeployment(ns, "web"), "mallory", `{"spec":{"replicas":3}}`)).To(Succeed())
		kubectl(ctx, ns, "", "set", "image", "deployment/web", "side=example.com/side:theirs")
		kubectl(ctx, ns, "", "patch", "deployment/web", "-p",
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","args":["serve","theirs","--quiet"]}]}}}}`)
		Expect(mergePatch(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		expectNoWrites(ctx, ns, mark, "all changed fields are ignored")

		stack(ctx, ns, "main@sha1:2", web("2", "b", 2),
			strings.Replace(twoValues("a", "2", "2"), "{name: a}", "{name: a, labels: {new: \"yes\"}}", 1))
		atRevision(ctx, in, "main@sha1:2")
		Expect(images(ctx, ns)).To(Equal("main=main:2serve,theirs,--quiet side=side:theirs"))
		awaitReplicas(ctx, ns, 3)
		a := getConfigMap(ctx, ns, "a")
		Expect(a.Data).To(Equal(map[string]string{"value": "1", "x": "theirs"}),
			"the applied keys of the ignored map stay as well")
		Expect(a.Labels).To(HaveKeyWithValue("new", "yes"))

		Expect(patch(ctx, aDeployment(ns, "web"), "mallory", `{"spec":{"paused":true,"minReadySeconds":3}}`)).
			To(Succeed())
		kubectl(ctx, ns, "", "set", "image", "deployment/web", "main=example.com/main:theirs")
		Eventually(ctx, func() string { return images(ctx, ns) }, soon, "10ms").Should(
			Equal("main=main:2serve,theirs,--quiet side=side:theirs"), "the other fields are corrected")
	})

	It("may be fields of list items that a value selects, or of all items, wherever the items are", func(
		ctx SpecContext) {
		const sidecar = "\n      - {name: proxy, image: \"example.com/proxy:%s\", args: [run, %s]}"
		render := func(tag, arg string, withProxy bool) string {
			doc := web(tag, arg, 1)
			if withProxy { // before the others
				doc = strings.Replace(doc, "containers:", "containers:"+fmt.Sprintf(sidecar, tag, arg), 1)
			}
			return doc
		}
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", render("1", "a", false))
		in := newInstall(ctx, ns, "i", hourly, ignorePaths("/spec/template/spec/containers/[name=side]/image",
			"/spec/template/spec/containers/*/args/1"))
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		kubectl(ctx, ns, "", "set", "image", "deployment/web", "side=example.com/side:theirs")
		kubectl(ctx, ns, "", "patch", "deployment/web", "-p",
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","args":["serve","theirs","--quiet"]}]}}}}`)
		expectNoWrites(ctx, ns, mark, "both fields are ignored")

		By("an item that appears before them")
		stack(ctx, ns, "main@sha1:2", render("2", "b", true))
		atRevision(ctx, in, "main@sha1:2")
		Expect(images(ctx, ns)).To(Equal("proxy=proxy:2run,b main=main:2serve,theirs,--quiet side=side:theirs"),
			"the ignored fields stay, and the fields of the new item are applied")
		mark = auditMark(ctx)
		requestReconcile(ctx, in, "again")
		kubectl(ctx, ns, "", "patch", "deployment/web", "-p",
			`{"spec":{"template":{"spec":{"containers":[{"name":"proxy","args":["run","theirs"]}]}}}}`)
		expectNoWrites(ctx, ns, mark, "the field of the new item is ignored, too")
		kubectl(ctx, ns, "", "set", "image", "deployment/web", "main=example.com/main:theirs")
		Eventually(ctx, func() string { return images(ctx, ns) }, soon, "10ms").Should(Equal(
			"proxy=proxy:2run,theirs main=main:2serve,theirs,--quiet side=side:theirs"), "another image is corrected")

		By("an item that disappears")
		stack(ctx, ns, "main@sha1:3", render("3", "c", false))
		atRevision(ctx, in, "main@sha1:3")
		Expect(images(ctx, ns)).To(HaveSuffix("main=main:3serve,theirs,--quiet side=side:theirs"))
	})

	It("may be fields of list items that a former manager keeps in a take-over", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		former := strings.Replace(web("former", "a", 1), "{name: web}", "{name: web, labels: {"+
			live.FluxKustomizationLabel+": former}}", 1)
		Expect(plane.Client().Patch(ctx, aDeployment(ns, "web"), client.RawPatch(types.ApplyPatchType, []byte(former)),
			client.FieldOwner("kustomize-controller"))).To(Succeed())
		stack(ctx, ns, "main@sha1:1", web("1", "a", 1))
		in := newInstall(ctx, ns, "i", hourly, ignorePaths("/spec/template/spec/containers/[name=main]/image"),
			func(in *appsv1.KsctlInstall) { in.Spec.Adopt = appsv1.AdoptAlways })
		atRevision(ctx, in, "main@sha1:1")
		Expect(images(ctx, ns)).To(Equal("main=main:formerserve,a,--quiet side=side:1"))
		d := aDeployment(ns, "web")
		Expect(get(ctx, d)).To(Succeed())
		var owners []string
		for _, e := range d.ManagedFields {
			for range strings.Count(string(e.FieldsV1.GetRawBytes()), `"f:image":`) {
				owners = append(owners, e.Manager)
			}
		}
		Expect(owners).To(ConsistOf("kustomize-controller", live.FieldManager), "each owns one image")
	})

	It("are not overwritten by an apply that is in flight when they change", func(ctx SpecContext) {
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
		in := newInstall(ctx, ns, "i", hourly, ignorePaths("/data/x"))
		atRevision(ctx, in, "main@sha1:1")
		stack(ctx, ns, "main@sha1:2", all("2")...)
		Eventually(ctx, func() string { return getConfigMap(ctx, ns, name(0)).Data["value"] }, soon, time.Millisecond).
			Should(Equal("2"))
		for i := objects - 1; i >= 0; i-- {
			Expect(mergePatch(`{"data":{"x":"theirs"}}`)(ctx, aConfigMap(ns, name(i)))).To(Succeed())
		}
		atRevision(ctx, in, "main@sha1:2")
		for i := range objects {
			Expect(getConfigMap(ctx, ns, name(i)).Data).To(Equal(map[string]string{"value": "2", "x": "theirs"}),
				name(i))
		}
	})

	It("may include the annotations and labels that have our marks", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", twoValues("a", "1", "1"))
		in := newInstall(ctx, ns, "i", hourly, ignorePaths("/metadata/annotations", "/metadata/labels"))
		atRevision(ctx, in, "main@sha1:1")
		kubectl(ctx, ns, "", "annotate", "configmap/a", "note=theirs")
		Expect(mergePatch(`{"metadata":{"annotations":null,"labels":null}}`)(ctx, aConfigMap(ns, "a"))).To(Succeed())
		Eventually(ctx, func() map[string]string { return getConfigMap(ctx, ns, "a").Annotations }, soon, "20ms").
			Should(HaveKey(live.MarkAnnotation))
		stack(ctx, ns, "main@sha1:2", twoValues("a", "2", "1"))
		atRevision(ctx, in, "main@sha1:2")
		expectOwnedBy(getConfigMap(ctx, ns, "a"), in)
		deleteAndWait(ctx, in)
		Expect(absent(ctx, &corev1.ConfigMap{ObjectMeta: objectMeta(ns, "a")})).To(BeTrue())
	})
})
