package faults_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/harness"
)

// valueAnnotation differs between the revisions of an object.
const valueAnnotation = "e2e.ksctl.com/value"

// installSet is a number of installs in a namespace, and their expected objects.
type installSet struct {
	ns string
	// flags are those of its controllers, besides the common ones.
	flags []string
	// size is the number of objects of each install.
	size map[string]int
	// at is the expected revision of each install that exists.
	at map[string]int
}

func newInstallSet(ctx context.Context, size map[string]int) *installSet {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, "faults")
	Expect(err).NotTo(HaveOccurred())
	return &installSet{ns: ns, size: size, at: map[string]int{}}
}

// sharedNamespace is created by a component of each install.
func (f *installSet) sharedNamespace() string { return f.ns + "-shared" }

// kinds are the kinds of the objects; rest is the part of the manifest after its metadata.
var kinds = []struct{ apiVersion, kind, rest string }{
	{"v1", "ConfigMap", "data: {a: b}\n"},
	{"v1", "ConfigMap", "data: {c: d}\n"},
	{"v1", "Secret", "stringData: {a: " + aSecret + "}\n"},
	{"v1", "ServiceAccount", ""},
	{"rbac.authorization.k8s.io/v1", "Role", "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"},
	{"v1", "Service", "spec: {ports: [{port: 80}]}\n"},
}

// object returns the component, the key and the value of the n-th object of an install at a
// revision. Each revision removes some objects of the previous one, adds as many new ones, and
// changes half of the others.
func (f *installSet) object(install string, revision, n int) (component, key, value string) {
	n += revision % 7 * max(1, f.size[install]/20)
	k := kinds[n%len(kinds)]
	component = []string{"one", "two", "three"}[n%3]
	ns := f.ns
	if component == "three" {
		ns = f.sharedNamespace()
	}
	if value = "fixed"; n%2 == 0 {
		value = fmt.Sprint("r", revision)
	}
	return component, fmt.Sprintf("%s %s/%s-%03d", k.kind, ns, install, n), value
}

// expected returns the objects of all installs and their values.
func (f *installSet) expected() map[string]string {
	out := map[string]string{}
	for install, revision := range f.at {
		for n := range f.size[install] {
			_, key, value := f.object(install, revision, n)
			out[key] = value
		}
	}
	return out
}

// publish publishes a revision of the source of an install.
func (f *installSet) publish(ctx context.Context, install string, revision int) {
	GinkgoHelper()
	files := map[string]string{}
	for n := range f.size[install] {
		component, key, value := f.object(install, revision, n)
		kind, name, _ := strings.Cut(key, " ")
		i := slices.IndexFunc(kinds, func(k struct{ apiVersion, kind, rest string }) bool { return k.kind == kind })
		_, name, _ = strings.Cut(name, "/")
		files[component+"/"+name+".yaml"] = fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, annotations: "+
			"{%s: %s}}\n%s",
			kinds[i].apiVersion, kind, name, valueAnnotation, value, kinds[i].rest)
	}
	stack := "spec:\n  version: 1.0.0\n  components:\n  - {name: one, manifests: [one/]}\n  - {name: two, dependsOn: " +
		"[one], manifests: [two/]}\n" +
		fmt.Sprintf("  - {name: three, dependsOn: [two], manifests: [three/], namespace: %s, createNamespace: true}\n",
			f.sharedNamespace())
	Expect(h.PublishSource(ctx, f.ns, install, fmt.Sprint("r", revision), harness.SourceTree(stack, files))).
		To(Succeed())
	f.at[install] = revision
}

// install creates an install, or publishes the next revision of an existing one.
func (f *installSet) install(ctx context.Context, name string, revision int) {
	GinkgoHelper()
	f.publish(ctx, name, revision)
	in := harness.NewInstall(f.ns, name)
	in.Labels = map[string]string{"fleet": f.ns}
	in.Spec.SourceRef.Name = name
	in.Spec.RetryInterval = &metav1.Duration{Duration: time.Second}
	if err := h.ControlPlane.Client().Create(ctx, in); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// remove deletes an install.
func (f *installSet) remove(ctx context.Context, name string) {
	GinkgoHelper()
	delete(f.at, name)
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name}}
	Expect(client.IgnoreNotFound(h.ControlPlane.Client().Delete(ctx, in))).To(Succeed())
}

// awaitConverged waits until every install is at its expected revision, and the cluster has
// exactly the expected objects.
func (f *installSet) awaitConverged(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, f.converged).WithContext(ctx).WithTimeout(soon).WithPolling(50*time.Millisecond).
		Should(Succeed(), "the installs converge")
}

func (f *installSet) converged(ctx context.Context) error {
	var list appsv1.KsctlInstallList
	if err := h.ControlPlane.Client().List(ctx, &list, client.InNamespace(f.ns)); err != nil {
		return err
	}
	for i := range list.Items {
		in := &list.Items[i]
		want, exists := f.at[in.Name]
		if c := harness.ReadyCondition(in); !exists || c.Status != "True" ||
			in.Status.LastAppliedRevision != fmt.Sprint("r", want) {
			return fmt.Errorf("%s is at %q, expected r%d (expected to exist: %t), Ready is %s/%s: %s", in.Name,
				in.Status.LastAppliedRevision, want, exists, c.Status, c.Reason, c.Message)
		}
	}
	if len(list.Items) != len(f.at) {
		return fmt.Errorf("%d installs, expected %d", len(list.Items), len(f.at))
	}
	have, err := f.marked(ctx)
	if err != nil {
		return err
	}
	want := f.expected()
	var wrong []string
	for _, o := range have {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if value, ok := want[key]; !ok || value != o.GetAnnotations()[valueAnnotation] {
			wrong = append(wrong, fmt.Sprintf("%s exists with %q", key, o.GetAnnotations()[valueAnnotation]))
		}
		delete(want, key)
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		wrong = append(wrong, key+" is missing")
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d objects are wrong: %s", len(wrong), strings.Join(wrong[:min(5, len(wrong))], "; "))
	}
	return nil
}

// marked returns all objects of the cluster with the label or a mark of the set's controller,
// of all kinds, except copies that other controllers made of them.
func (f *installSet) marked(ctx context.Context) ([]*unstructured.Unstructured, error) {
	resources, err := listable()
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, gvk := range resources {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		if err := h.ControlPlane.Client().List(ctx, list, client.MatchingLabels{live.OwnerLabel: f.ns}); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if len(o.GetOwnerReferences()) == 0 || o.GetAnnotations()[live.MarkAnnotation] != "" {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

var listableKinds []schema.GroupVersionKind

// listable returns the kinds that the cluster can list.
func listable() ([]schema.GroupVersionKind, error) {
	if listableKinds != nil {
		return listableKinds, nil
	}
	dc, err := discovery.NewDiscoveryClientForConfig(h.ControlPlane.Config())
	if err != nil {
		return nil, err
	}
	groups, err := dc.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var out []schema.GroupVersionKind
	for _, g := range groups {
		gv, err := schema.ParseGroupVersion(g.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range g.APIResources {
			// EndpointSlices and Endpoints are copies of Services with their labels.
			// ComponentStatuses are not stored.
			if slices.Contains(r.Verbs, "list") &&
				!slices.Contains([]string{"EndpointSlice", "Endpoints", "ComponentStatus"}, r.Kind) {
				kind := gv.WithKind(r.Kind)
				kind.Kind += "List"
				out = append(out, kind)
			}
		}
	}
	listableKinds = out
	return out, nil
}

// orphans returns objects that the set's controller created and that no inventory lists.
func (f *installSet) orphans(ctx context.Context) ([]string, error) {
	// List the objects first: an entry is removed only after its object.
	objects, err := f.marked(ctx)
	if err != nil {
		return nil, err
	}
	var installs appsv1.KsctlInstallList
	var chunks appsv1.KsctlInventoryList
	if err := errors.Join(h.ControlPlane.Client().List(ctx, &installs, client.InNamespace(f.ns)),
		h.ControlPlane.Client().List(ctx, &chunks, client.InNamespace(f.ns))); err != nil {
		return nil, err
	}
	known := map[string]*plan.Inventory{}
	for i := range installs.Items {
		in := &installs.Items[i]
		parts := slices.DeleteFunc(slices.Clone(chunks.Items), func(c appsv1.KsctlInventory) bool {
			return c.Owner.Name != in.Name
		})
		known[in.Name] = plan.NewInventory(in.Status.Inventory, parts)
	}
	var out []string
	for _, o := range objects {
		mark, err := live.ParseMark(o.GetAnnotations()[live.MarkAnnotation])
		if err == nil {
			key, _ := plan.ParseOwnerKey(mark.Owner)
			if inv := known[key.Name]; inv != nil {
				if _, ok := inv.Get(mark.ID); ok {
					continue
				}
			}
		}
		out = append(out, fmt.Sprintf("%s %s/%s with the mark %q", o.GetKind(), o.GetNamespace(), o.GetName(),
			o.GetAnnotations()[live.MarkAnnotation]))
	}
	return out, nil
}

// expectNoOrphans fails if there is an object that no inventory lists.
func (f *installSet) expectNoOrphans(ctx context.Context, moment string) {
	GinkgoHelper()
	orphans, err := f.orphans(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(orphans).To(BeEmpty(), "%s: objects that no inventory lists", moment)
}

// removeAll removes every install and waits until none of their objects is left.
func (f *installSet) removeAll(ctx context.Context) {
	GinkgoHelper()
	for name := range f.size {
		f.remove(ctx, name)
	}
	f.awaitConverged(ctx)
	f.expectNoOrphans(ctx, "after the removal")
	Eventually(ctx, func() error {
		ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Name: f.sharedNamespace()}, ns); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("it still exists: %v", ns.Annotations)
	}).WithTimeout(soon).Should(Succeed(), "the created namespace is deleted with the last install")
	var chunks appsv1.KsctlInventoryList
	Expect(h.ControlPlane.Client().List(ctx, &chunks, client.InNamespace(f.ns))).To(Succeed())
	Expect(chunks.Items).To(BeEmpty(), "parts of inventories")
}
