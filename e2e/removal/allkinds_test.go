package removal_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// allKindsFiles returns the files of a stack with a CRD, a webhook, an object with a finalizer,
// and objects that are kept.
func allKindsFiles(group, space string) map[string]string {
	return map[string]string{
		"base/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + space + "}\n",
		"base/crd.yaml":       definition(group),
		"operator/operator.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: operator, namespace: %s}
spec:
  replicas: 1
  selector: {matchLabels: {app: operator}}
  template:
    metadata: {labels: {app: operator}}
    spec: {containers: [{name: main, image: "example.com/operator:1"}]}
`, space),
		"operator/webhook.yaml": fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: widgets.%[1]s
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  clientConfig: {service: {name: operator, namespace: %[2]s}}
  rules: [{operations: [CREATE], apiGroups: [%[1]s], apiVersions: [v1], resources: [widgets]}]
`, group, space),
		"use/widget.yaml": fmt.Sprintf("apiVersion: %s/v1\nkind: Widget\nmetadata: {name: w, namespace: %s, "+
			"finalizers: [%s/operator]}\n", group, space, group),
		"use/job.yaml": fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: setup, namespace: %s}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: "example.com/setup:1"}]}}
`, space),
		"use/claim.yaml": strings.Replace(claim, "{name: data}", "{name: data, namespace: "+space+"}", 1),
	}
}

const allKindsStack = `spec:
  version: 1.0.0
  components:
  - {name: base, manifests: [base/]}
  - {name: operator, manifests: [operator/], dependsOn: [base]}
  - {name: use, manifests: [use/], dependsOn: [operator]}
`

// runOperator removes the finalizer from deleted Widgets, like their operator does as long as
// its Deployment exists.
func runOperator(ctx context.Context, group, space string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() {
		defer GinkgoRecover()
		for tick := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case <-tick.C:
				w := widget(group, space, "w")
				if get(ctx, w) != nil || w.GetDeletionTimestamp() == nil {
					continue
				}
				operator := widget(group, space, "operator")
				operator.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
				if get(ctx, operator) == nil {
					_ = h.ControlPlane.Client().
						Patch(ctx, w, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				}
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// listAllObjects returns every object of the cluster, except events, leases and objects of
// kinds that disappear meanwhile.
func listAllObjects(ctx context.Context) ([]string, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(h.ControlPlane.Config())
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(h.ControlPlane.Config())
	if err != nil {
		return nil, err
	}
	_, lists, err := disco.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range l.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "events" || r.Name == "leases" ||
				strings.Contains(r.Name, "/") {
				continue
			}
			all, err := dyn.Resource(gv.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			for i := range all.Items {
				u := &all.Items[i]
				seen[gv.Group+"/"+u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

var _ = Describe("A stack with all kinds of objects", Serial, suite.Repeat, func() {
	It("leaves the cluster unchanged after each removal", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		group, space := ns+".example.com", ns+"-x"
		Expect(h.PublishSource(ctx, ns, "src", "r1", harness.SourceTree(allKindsStack, allKindsFiles(group, space)))).
			To(Succeed())
		DeferCleanup(runOperator(ctx, group, space))
		var before []string
		Eventually(ctx, func(g Gomega) { // objects of earlier specs may still be garbage collected
			var namespaces corev1.NamespaceList
			g.Expect(h.ControlPlane.Client().List(ctx, &namespaces)).To(Succeed())
			for i := range namespaces.Items {
				g.Expect(namespaces.Items[i].DeletionTimestamp).To(BeNil(), namespaces.Items[i].Name)
			}
			var err error
			before, err = listAllObjects(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Consistently(ctx, listAllObjects, time.Second, "300ms").WithArguments(ctx).Should(Equal(before))
		}, soon).Should(Succeed(), "the cluster is idle")
		pvc := &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta(space, "data")}
		began := time.Now()
		times := 4
		if suite.Long() {
			times = 20
		}
		for i := range times {
			in := install(ctx, ns, "i", fromStack("app"))
			becomesReady(ctx, in)
			remove(ctx, in)
			awaitGone(ctx, in)
			Expect(get(ctx, pvc)).To(Succeed(), "the claim is kept, and its namespace with it")
			Expect(pvc.DeletionTimestamp).To(BeNil())
			remove(ctx, pvc, &corev1.Namespace{ObjectMeta: objectMeta("", space)})
			awaitGone(ctx, &corev1.Namespace{ObjectMeta: objectMeta("", space)})
			Eventually(ctx, listAllObjects, soon, "200ms").WithArguments(ctx).
				Should(Equal(before), "round %d: no object is left or missing", i+1)
		}
		AddReportEntry("installed and removed",
			fmt.Sprintf("%d times in %s", times, time.Since(began).Round(time.Second)), ReportEntryVisibilityAlways)
	}, SpecTimeout(20*time.Minute))
})
