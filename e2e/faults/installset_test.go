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
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/harness"
)

// valueAnnotation is what changes on an object from one revision to the next.
const valueAnnotation = "e2e.ksctl.com/value"

// fleet is some installs in a namespace of their own, and what they are to have.
type fleet struct {
	ns string
	// size is the number of objects of each install.
	size map[string]int
	// at is the revision that each install that exists has been told to be at.
	at map[string]int
}

func newFleet(ctx context.Context, size map[string]int) *fleet {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, "faults")
	Expect(err).NotTo(HaveOccurred())
	return &fleet{ns: ns, size: size, at: map[string]int{}}
}

// sharedNamespace is asked for by a component of each install.
func (f *fleet) sharedNamespace() string { return f.ns + "-shared" }

// kinds are those of a fleet's objects; the rest of each manifest after its metadata.
var kinds = []struct{ apiVersion, kind, rest string }{
	{"v1", "ConfigMap", "data: {a: b}\n"},
	{"v1", "ConfigMap", "data: {c: d}\n"},
	{"v1", "Secret", "stringData: {a: " + aSecret + "}\n"},
	{"v1", "ServiceAccount", ""},
	{"rbac.authorization.k8s.io/v1", "Role", "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"},
	{"v1", "Service", "spec: {ports: [{port: 80}]}\n"},
}

// object is the place of the n-th object of an install, and its value, at a
// revision. Each revision leaves some objects out that the one before had,
// brings as many new ones, and changes half of the others.
func (f *fleet) object(install string, revision, n int) (component, key, value string) {
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

// wanted are the objects of all installs and their values.
func (f *fleet) wanted() map[string]string {
	out := map[string]string{}
	for install, revision := range f.at {
		for n := range f.size[install] {
			_, key, value := f.object(install, revision, n)
			out[key] = value
		}
	}
	return out
}

// publish offers a revision to one install.
func (f *fleet) publish(ctx context.Context, install string, revision int) {
	GinkgoHelper()
	files := map[string]string{}
	for n := range f.size[install] {
		component, key, value := f.object(install, revision, n)
		kind, name, _ := strings.Cut(key, " ")
		i := slices.IndexFunc(kinds, func(k struct{ apiVersion, kind, rest string }) bool { return k.kind == kind })
		_, name, _ = strings.Cut(name, "/")
		files[component+"/"+name+".yaml"] = fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, annotations: {%s: %s}}\n%s",
			kinds[i].apiVersion, kind, name, valueAnnotation, value, kinds[i].rest)
	}
	stack := "spec:\n  version: 1.0.0\n  components:\n  - {name: one, manifests: [one/]}\n  - {name: two, dependsOn: [one], manifests: [two/]}\n" +
		fmt.Sprintf("  - {name: three, dependsOn: [two], manifests: [three/], namespace: %s, createNamespace: true}\n", f.sharedNamespace())
	Expect(h.Publish(ctx, f.ns, install, fmt.Sprint("r", revision), harness.Tree(stack, files))).To(Succeed())
	f.at[install] = revision
}

// install creates an install, or makes the one there is go on to the next revision.
func (f *fleet) install(ctx context.Context, name string, revision int) {
	GinkgoHelper()
	f.publish(ctx, name, revision)
	in := harness.Install(f.ns, name)
	in.Labels = map[string]string{"fleet": f.ns}
	in.Spec.SourceRef.Name = name
	in.Spec.RetryInterval = &metav1.Duration{Duration: time.Second}
	if err := h.Plane.Client().Create(ctx, in); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// remove deletes an install.
func (f *fleet) remove(ctx context.Context, name string) {
	GinkgoHelper()
	delete(f.at, name)
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: f.ns, Name: name}}
	Expect(client.IgnoreNotFound(h.Plane.Client().Delete(ctx, in))).To(Succeed())
}

// stands waits until every install is where it was told to be, and the cluster
// has its objects and no other.
func (f *fleet) stands(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, f.standing).WithContext(ctx).WithTimeout(soon).WithPolling(50*time.Millisecond).Should(Succeed(), "it converges")
}

func (f *fleet) standing(ctx context.Context) error {
	var list appsv1.KsctlInstallList
	if err := h.Plane.Client().List(ctx, &list, client.InNamespace(f.ns)); err != nil {
		return err
	}
	for i := range list.Items {
		in := &list.Items[i]
		want, wanted := f.at[in.Name]
		if c := harness.Ready(in); !wanted || c.Status != "True" || in.Status.LastAppliedRevision != fmt.Sprint("r", want) {
			return fmt.Errorf("%s is at %q, to be at r%d (wanted: %t), Ready is %s/%s: %s", in.Name, in.Status.LastAppliedRevision, want, wanted, c.Status, c.Reason, c.Message)
		}
	}
	if len(list.Items) != len(f.at) {
		return fmt.Errorf("%d installs and not %d", len(list.Items), len(f.at))
	}
	have, err := f.marked(ctx)
	if err != nil {
		return err
	}
	want := f.wanted()
	var wrong []string
	for _, o := range have {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if value, ok := want[key]; !ok || value != o.GetAnnotations()[valueAnnotation] {
			wrong = append(wrong, fmt.Sprintf("%s is there with %q", key, o.GetAnnotations()[valueAnnotation]))
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

// marked are all objects on the cluster that carry the label or a mark of the
// fleet's controller, of whatever kind; copies that others made of them aside.
func (f *fleet) marked(ctx context.Context) ([]*unstructured.Unstructured, error) {
	resources, err := listable()
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, gvk := range resources {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		if err := h.Plane.Client().List(ctx, list, client.MatchingLabels{live.OwnerLabel: f.ns}); err != nil {
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

var listed []schema.GroupVersionKind

// listable are the kinds that the cluster can list.
func listable() ([]schema.GroupVersionKind, error) {
	if listed != nil {
		return listed, nil
	}
	dc, err := discovery.NewDiscoveryClientForConfig(h.Plane.Config())
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
			// Two are copies of Services with their labels, and one is stored nowhere.
			if slices.Contains(r.Verbs, "list") && !slices.Contains([]string{"EndpointSlice", "Endpoints", "ComponentStatus"}, r.Kind) {
				kind := gv.WithKind(r.Kind)
				kind.Kind += "List"
				out = append(out, kind)
			}
		}
	}
	listed = out
	return out, nil
}

// orphans are objects that the fleet's controller made and that no inventory lists.
func (f *fleet) orphans(ctx context.Context) ([]string, error) {
	// Objects first: an entry goes only after its object.
	objects, err := f.marked(ctx)
	if err != nil {
		return nil, err
	}
	var installs appsv1.KsctlInstallList
	var chunks appsv1.KsctlInventoryList
	if err := errors.Join(h.Plane.Client().List(ctx, &installs, client.InNamespace(f.ns)), h.Plane.Client().List(ctx, &chunks, client.InNamespace(f.ns))); err != nil {
		return nil, err
	}
	known := map[string]*engine.Inventory{}
	for i := range installs.Items {
		in := &installs.Items[i]
		parts := slices.DeleteFunc(slices.Clone(chunks.Items), func(c appsv1.KsctlInventory) bool { return c.Owner.Name != in.Name })
		known[in.Name] = engine.NewInventory(in.Status.Inventory, parts)
	}
	var out []string
	for _, o := range objects {
		mark, err := live.ParseMark(o.GetAnnotations()[live.MarkAnnotation])
		if err == nil {
			key, _ := engine.ParseOwnerKey(mark.Owner)
			if inv := known[key.Name]; inv != nil {
				if _, ok := inv.Get(mark.ID); ok {
					continue
				}
			}
		}
		out = append(out, fmt.Sprintf("%s %s/%s with the mark %q", o.GetKind(), o.GetNamespace(), o.GetName(), o.GetAnnotations()[live.MarkAnnotation]))
	}
	return out, nil
}

// knowsAll fails when there is an object that no inventory lists.
func (f *fleet) knowsAll(ctx context.Context, when string) {
	GinkgoHelper()
	orphans, err := f.orphans(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(orphans).To(BeEmpty(), "%s: objects that no inventory lists", when)
}

// clears removes every install and waits until nothing is left of them.
func (f *fleet) clears(ctx context.Context) {
	GinkgoHelper()
	for name := range f.size {
		f.remove(ctx, name)
	}
	f.stands(ctx)
	f.knowsAll(ctx, "in the end")
	Eventually(ctx, func() error {
		ns := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		if err := h.Plane.Client().Get(ctx, client.ObjectKey{Name: f.sharedNamespace()}, ns); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("it is there: %v", ns.Annotations)
	}).WithTimeout(soon).Should(Succeed(), "the namespace that the installs made goes with the last of them")
	var chunks appsv1.KsctlInventoryList
	Expect(h.Plane.Client().List(ctx, &chunks, client.InNamespace(f.ns))).To(Succeed())
	Expect(chunks.Items).To(BeEmpty(), "parts of inventories")
}
