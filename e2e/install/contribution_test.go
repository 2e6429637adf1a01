package install_test

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

// listDefinition is definition for widgets with targets, which have unique names.
func listDefinition(group string) string {
	return strings.Replace(definition(group, "Namespaced"), "x-kubernetes-preserve-unknown-fields: true",
		"properties: {spec: {type: object, properties: {size: {type: integer}, targets: {type: array, "+
			"x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], "+
			"properties: {name: {type: string}, port: {type: integer}}}}}}}", 1)
}

// widgetWith returns a Widget "shared" with targets.
func widgetWith(group, spec string, targets ...string) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: shared}\nspec: {%stargets: [%s]}\n", group,
		spec, strings.Join(targets, ", "))
}

func target(name string, port int) string { return fmt.Sprintf("{name: %s, port: %d}", name, port) }

// contribute publishes a stack that contributes as the source of an install.
func contribute(ctx context.Context, ns, name, revision string, docs ...string) {
	GinkgoHelper()
	files := map[string]string{}
	for i, d := range docs {
		files[fmt.Sprintf("main/%03d.yaml", i)] = d
	}
	publish(ctx, ns, name, revision, tree(oneComponent+"    contribute: true\n", files))
}

// newContributor creates an install whose source has its name.
func newContributor(ctx context.Context, ns, name string) *appsv1.KsctlInstall {
	GinkgoHelper()
	return newInstall(ctx, ns, name, hourly, func(in *appsv1.KsctlInstall) { in.Spec.SourceRef.Name = name })
}

// expectTargets waits until a Widget has exactly these targets, in any order.
func expectTargets(ctx context.Context, w *unstructured.Unstructured, why string, want map[string]int64) {
	GinkgoHelper()
	Eventually(ctx, func() (map[string]int64, error) {
		err := get(ctx, w)
		got := map[string]int64{}
		list, _, _ := unstructured.NestedSlice(w.Object, "spec", "targets")
		for _, item := range list {
			t, _ := item.(map[string]any)
			name, _ := t["name"].(string)
			got[name], _ = t["port"].(int64)
		}
		return got, err
	}, soon, "20ms").Should(Equal(want), why)
}

var _ = Describe("Contributions to the object of another install", suite.Safety, func() {
	It("survive its updates, are put right when others change them, and are taken back alone", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group := deleteDefinition(ns + ".example.com")
		stack(ctx, ns, "main@sha1:1", listDefinition(group), widgetWith(group, "size: 1, ", target("own", 1)))
		owner := newInstall(ctx, ns, "owner", hourly)
		atRevision(ctx, owner, "main@sha1:1")
		shared := widgetObject(group, ns, "shared")
		Expect(get(ctx, shared)).To(Succeed())
		uid := shared.GetUID()

		By("two installs that contribute")
		mark := auditMark(ctx)
		contribute(ctx, ns, "one", "main@sha1:1", widgetWith(group, "", target("one", 1)))
		one := newContributor(ctx, ns, "one")
		atRevision(ctx, one, "main@sha1:1")
		contribute(ctx, ns, "two", "main@sha1:1", widgetWith(group, "", target("two", 1)))
		two := newContributor(ctx, ns, "two") // after the other: a request for an old version is repeated
		atRevision(ctx, two, "main@sha1:1")
		expectTargets(ctx, shared, "each has its target", map[string]int64{"own": 1, "one": 1, "two": 1})
		expectOwnedBy(shared, owner)
		Expect(one.Status.Inventory.Entries).To(HaveLen(1))
		Expect(one.Status.Inventory.Entries[0].State).To(Equal(appsv1.EntryContributed))
		widgets := func(mark cluster.Mark) int {
			return len(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Resource("widgets"),
				cluster.Write))
		}
		Consistently(ctx, func() int { return widgets(mark) }, quiet, "500ms").Should(Equal(2),
			"one request for each, and none of the owner")

		By("drift of one, and the loss of another")
		Expect(patch(ctx, shared.DeepCopy(), "mallory",
			`{"spec":{"targets":[{"name":"own","port":1},{"name":"one","port":9}]}}`)).To(Succeed())
		expectTargets(ctx, shared, "both are put right", map[string]int64{"own": 1, "one": 1, "two": 1})
		Eventually(eventsWithReason(ctx, one, "DriftCorrected"), soon).ShouldNot(BeEmpty())

		By("an update of the owner")
		stack(ctx, ns, "main@sha1:2", listDefinition(group), widgetWith(group, "size: 2, ", target("own", 2)))
		atRevision(ctx, owner, "main@sha1:2")
		expectTargets(ctx, shared, "contributions stay", map[string]int64{"own": 2, "one": 1, "two": 1})

		By("an update of a contribution")
		contribute(ctx, ns, "one", "main@sha1:2", widgetWith(group, "", target("one", 5), target("more", 6)))
		atRevision(ctx, one, "main@sha1:2")
		expectTargets(ctx, shared, "it has changed", map[string]int64{"own": 2, "one": 5, "more": 6, "two": 1})

		By("another component that has the contribution")
		publish(ctx, ns, "one", "main@sha1:3", tree("spec:\n  version: 1.0.0\n  components:\n  - {name: other, "+
			"manifests: [main/], contribute: true}\n", map[string]string{"main/a.yaml": widgetWith(group, "",
			target("one", 7))}))
		atRevision(ctx, one, "main@sha1:3")
		expectTargets(ctx, shared, "it has changed", map[string]int64{"own": 2, "one": 7, "two": 1})

		By("a stack without the contribution, and the removal of the other")
		stackWithout := map[string]string{"main/a.yaml": configMap("alone", "1")}
		publish(ctx, ns, "two", "main@sha1:2", tree(oneComponent, stackWithout))
		atRevision(ctx, two, "main@sha1:2")
		expectTargets(ctx, shared, "its target is gone", map[string]int64{"own": 2, "one": 7})
		deleteAndWait(ctx, one)
		expectTargets(ctx, shared, "only the owner's is left", map[string]int64{"own": 2})
		Expect(shared.GetUID()).To(Equal(uid))
		for _, e := range shared.GetManagedFields() {
			Expect(live.IsContributionManager(e.Manager)).To(BeFalse(), e.Manager)
		}
		atRevision(ctx, owner, "main@sha1:2")
	})

	It("wait for a missing object, and are applied again to a new object of the same name", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		contribute(ctx, ns, "one", "main@sha1:1", configMap("shared", "ours"))
		one := newContributor(ctx, ns, "one")
		waits := func() {
			GinkgoHelper()
			Eventually(ctx, func() (string, error) {
				err := get(ctx, one)
				return string(ready(one).Status) + " " + ready(one).Message, err
			}, soon, "20ms").Should(And(Not(HavePrefix("True")),
				ContainSubstring("ConfigMap "+ns+"/shared does not exist")))
		}
		value := func() string {
			cm := aConfigMap(ns, "shared")
			if err := get(ctx, cm); err != nil {
				return err.Error()
			}
			return cm.Data["value"]
		}
		waits()
		create := func() {
			GinkgoHelper()
			cm := aConfigMap(ns, "shared")
			cm.Data = map[string]string{"own": "theirs"}
			Expect(plane.Client().Create(ctx, cm, client.FieldOwner("somebody"))).To(Succeed())
		}
		create()
		atRevision(ctx, one, "main@sha1:1")
		Expect(value()).To(Equal("ours"))
		deleteAndWait(ctx, aConfigMap(ns, "shared"))
		waits()
		Expect(value()).To(ContainSubstring("not found"), "a contribution creates nothing")
		create()
		Eventually(value, soon, "20ms").Should(Equal("ours"))
		atRevision(ctx, one, "main@sha1:1")
		deleteAndWait(ctx, one)
		cm := getConfigMap(ctx, ns, "shared")
		Expect(cm.Data).To(Equal(map[string]string{"own": "theirs"}))
		Expect(cm.Labels).To(BeEmpty())
		Expect(cm.Annotations).To(BeEmpty())
	})

	It("are refused for a field that another manager has, until it gives the field up", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		foreignConfigMap(ctx, ns, "shared", metav1.ObjectMeta{})
		contribute(ctx, ns, "one", "main@sha1:1", configMap("shared", "ours"))
		one := newContributor(ctx, ns, "one")
		reports(ctx, one, "False", "OwnedByAnother", "ConfigMap "+ns+"/shared", ".data.value", "somebody")
		Expect(getConfigMap(ctx, ns, "shared").Data).To(HaveKeyWithValue("value", "theirs"))

		By("the manager gives the field up")
		Expect(mergePatch(`{"data":{"value":null}}`)(ctx, aConfigMap(ns, "shared"))).To(Succeed())
		atRevision(ctx, one, "main@sha1:1")
		Expect(getConfigMap(ctx, ns, "shared").Data).To(HaveKeyWithValue("value", "ours"))

		By("another contribution to the same field")
		contribute(ctx, ns, "two", "main@sha1:1", configMap("shared", "others"))
		two := newContributor(ctx, ns, "two")
		reports(ctx, two, "False", "OwnedByAnother", ".data.value", "another contribution")
		Expect(getConfigMap(ctx, ns, "shared").Data).To(HaveKeyWithValue("value", "ours"))

		By("the removal of the refused one, and of the other")
		deleteAndWait(ctx, two)
		Expect(getConfigMap(ctx, ns, "shared").Data).To(HaveKeyWithValue("value", "ours"))
		deleteAndWait(ctx, one)
		Expect(getConfigMap(ctx, ns, "shared").Data).To(Equal(map[string]string{"more": "theirs"}))
	})
})
