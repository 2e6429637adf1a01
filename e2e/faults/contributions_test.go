package faults_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// contributors are installs that contribute one item each to the list of one object.
type contributors struct {
	*installSet
	list *unstructured.Unstructured
	// want are the ports of the items by name.
	want map[string]int64
}

// numberOfContributors is the number of installs that contribute to one list.
const numberOfContributors = 20

func newContributors(ctx context.Context) *contributors {
	GinkgoHelper()
	f := newInstallSet(ctx, nil)
	c := &contributors{installSet: f, want: map[string]int64{"own": 0}}
	group := f.ns + ".example.com"
	crd := object(fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rosters.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Roster, plural: rosters, singular: roster, listKind: RosterList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              targets:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, port: {type: integer}}
`, group))
	Expect(h.ControlPlane.Client().Create(ctx, crd)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(h.ControlPlane.Client().Delete(ctx, crd)).To(Succeed()) })
	c.list = object(fmt.Sprintf("apiVersion: %s/v1\nkind: Roster\nmetadata: {namespace: %s, name: shared}\n"+
		"spec: {targets: [{name: own, port: 0}]}\n", group, f.ns))
	Eventually(ctx, func() error { return h.ControlPlane.Client().Create(ctx, c.list) }).WithTimeout(soon).
		Should(Succeed(), "the kind is served")
	return c
}

func object(text string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(text), &u.Object)).To(Succeed())
	return u
}

func contributorName(n int) string { return fmt.Sprintf("c%02d", n) }

// contribute creates or changes the n-th install.
func (c *contributors) contribute(ctx context.Context, n, revision int) {
	GinkgoHelper()
	name := contributorName(n)
	c.want[name] = int64(revision)
	Expect(h.PublishSource(ctx, c.ns, name, fmt.Sprint("r", revision), harness.SourceTree(
		harness.OneComponent+"    contribute: true\n", map[string]string{"main/a.yaml": fmt.Sprintf(
			"apiVersion: %s\nkind: Roster\nmetadata: {name: shared}\nspec: {targets: [{name: %s, port: %d}]}\n",
			c.list.GetAPIVersion(), name, revision)}))).To(Succeed())
	in := harness.NewInstall(c.ns, name)
	in.Labels = map[string]string{"fleet": c.ns}
	in.Spec.SourceRef.Name = name
	in.Spec.RetryInterval = &metav1.Duration{Duration: time.Second}
	if err := h.ControlPlane.Client().Create(ctx, in); !apierrors.IsAlreadyExists(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

// withdraw deletes the n-th install.
func (c *contributors) withdraw(ctx context.Context, n int) {
	GinkgoHelper()
	delete(c.want, contributorName(n))
	c.remove(ctx, contributorName(n))
}

// converged returns an error unless the list has exactly the expected items, and all installs are
// ready or gone.
func (c *contributors) converged(ctx context.Context) error {
	var installs appsv1.KsctlInstallList
	if err := h.ControlPlane.Client().List(ctx, &installs, client.InNamespace(c.ns)); err != nil {
		return err
	}
	if n := len(c.want) - 1; len(installs.Items) != n {
		return fmt.Errorf("%d installs, want %d", len(installs.Items), n)
	}
	for i := range installs.Items {
		in := &installs.Items[i]
		if r := harness.ReadyCondition(in); r.Status != metav1.ConditionTrue ||
			in.Status.LastAppliedRevision != fmt.Sprint("r", c.want[in.Name]) {
			return fmt.Errorf("%s is at %s: %s %s", in.Name, in.Status.LastAppliedRevision, r.Status, r.Message)
		}
	}
	now := c.list.DeepCopy()
	if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
		return err
	}
	if now.GetUID() != c.list.GetUID() || len(now.GetLabels())+len(now.GetAnnotations()) > 0 {
		return fmt.Errorf("the object itself was touched: %v", now.Object["metadata"])
	}
	items, _, _ := unstructured.NestedSlice(now.Object, "spec", "targets")
	got := map[string]int64{}
	for _, item := range items {
		t, _ := item.(map[string]any)
		name, _ := t["name"].(string)
		got[name], _ = t["port"].(int64)
	}
	if len(got) != len(c.want) {
		return fmt.Errorf("items %v, want %v", got, c.want)
	}
	for name, port := range c.want {
		if at, there := got[name]; !there || at != port {
			return fmt.Errorf("items %v, want %v", got, c.want)
		}
	}
	return nil
}

func (c *contributors) awaitConverged(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, c.converged).WithContext(ctx).WithTimeout(soon).WithPolling(50*time.Millisecond).
		Should(Succeed(), "the list has the items of the installs")
}

var _ = Describe("Installs that contribute to one list", suite.Safety, func() {
	It("lose no item, and leave none, whenever the controller is killed", func(ctx SpecContext) {
		c := newContributors(ctx)
		p, r := newProxy(), rand.New(rand.NewPCG(seed, 2))
		killed := func(n int) {
			GinkgoHelper()
			for range n {
				c.killOnce(ctx, p, r)
			}
			life := startController(ctx, c.installSet, p)
			c.awaitConverged(ctx)
			life.Kill()
		}
		rounds := max(1, kills()/6)
		for revision := range rounds {
			for n := range numberOfContributors {
				switch _, there := c.want[contributorName(n)]; {
				case revision == 0 || !there || r.IntN(3) > 0:
					c.contribute(ctx, n, revision+1)
				case r.IntN(4) == 0:
					c.withdraw(ctx, n)
				}
			}
			killed(3)
		}
		for n := range numberOfContributors {
			c.withdraw(ctx, n)
		}
		killed(3)
		now := c.list.DeepCopy()
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
		Expect(now.Object["spec"]).To(Equal(c.list.Object["spec"]))
		for _, e := range now.GetManagedFields() {
			Expect(live.IsContributionManager(e.Manager)).To(BeFalse(), e.Manager)
		}
	}, SpecTimeout(time.Hour))
})
