// Package kind_test publishes stacks as kinds, and creates objects of these kinds.
package kind_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 4 * time.Minute

// group is the API group that the controller may serve kinds in.
const group = "shops.example.com"

// ungrantedGroup is another group of --kind-groups, without the rule for it.
const ungrantedGroup = "ungranted.example.com"

var (
	h          *harness.Harness
	plane      *cluster.Cluster
	controller *framework.Controller
	scanner    = &leakscan.Scanner{}
)

func TestKind(t *testing.T) {
	suite.Run(t, "Kind")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.StartScanned(ctx, cluster.Options{Audit: true, Nodes: -1, NoScheduler: true}, scanner)
	plane = h.ControlPlane
	Expect(harness.AllowKinds(ctx, plane, group)).To(Succeed())
	worker, err := h.Build(ctx, programs.SOPSWorker)
	Expect(err).NotTo(HaveOccurred())
	controller = framework.StartController(h, "--kind-groups="+group+","+ungrantedGroup, "--sops-worker="+worker)
}, NodeTimeout(10*time.Minute))

// shopServes serves the kind KIND.
const shopServes = `
  serves:
    group: shops.example.com
    kind: KIND
    versions: [{name: v1alpha1}]
    columns: [{name: URL, type: string, path: .status.url}]
    schema:
      type: object
      required: [greeting]
      properties:
        greeting: {type: string}
        port: {type: integer, default: 80}
        namespace: {type: string}
        token: {type: string, format: password}
    install:
      retryInterval: 1s
      targetNamespace: {expr: "self.spec.?namespace"}
      components: [{name: main, namePrefix: {expr: self.metadata.name + '-'}}]
      parameters: {greeting: {expr: self.spec.greeting}, port: {expr: self.spec.port}, token: {expr: "self.spec.?token"}}
    statusSchema: {properties: {url: {type: string}, port: {type: integer}}}
    status:
      port: {expr: self.spec.port}
      url: {expr: "'http://' + objects.Service[self.metadata.name + '-web'].spec.clusterIP"}
      conditions: [{type: Available, status: {expr: ready.status}, reason: {expr: ready.reason}}]
`

const shopStack = `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: shop}
spec:
  version: 1.0.0
  parameters: {schema: {properties: {greeting: {type: string}, port: {type: integer}, token: {type: string, default: none}}}}
  components:
  - name: main
    manifests: [main.yaml]
    fields:
    - {target: {kind: ConfigMap}, path: data.greeting, value: stack.greeting}
    - {target: {kind: Secret}, path: stringData.token, value: stack.token}
    - {target: {kind: Service}, path: "spec.ports.[name=http].port", value: stack.port}
`

const shopObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {greeting: "", release: "RELEASE"}
---
apiVersion: v1
kind: Secret
metadata: {name: web}
stringData: {token: ""}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 1, targetPort: 8080}]}
`

// publishShop publishes a revision of the stack of a kind.
func publishShop(ctx context.Context, platform, kind, revision string, replace ...string) {
	GinkgoHelper()
	change := strings.NewReplacer(append(replace, "KIND", kind)...)
	Expect(h.PublishSource(ctx, platform, "fleet", revision, artifacts.Files(map[string]string{
		"stacks/shop/stack.yaml": change.Replace(shopStack + strings.TrimPrefix(shopServes, "\n")),
		"stacks/shop/main.yaml":  change.Replace(shopObjects)}))).To(Succeed())
}

// newKind creates a KsctlKind of the stack shop. It removes what is left of it at the end.
func newKind(ctx context.Context, platform, kind string, changes ...func(*appsv1.KsctlKind)) *appsv1.KsctlKind {
	GinkgoHelper()
	k := &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(kind)},
		Spec: appsv1.KsctlKindSpec{Path: "stacks", Stack: "shop", ServiceAccountName: harness.Deployer,
			SourceRef: appsv1.SourceRef{Kind: "KsctlSource", Namespace: platform, Name: "fleet"}}}
	for _, change := range changes {
		change(k)
	}
	Expect(plane.Client().Create(ctx, k)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"deletionPolicy": "Delete"}}`))
		Expect(client.IgnoreNotFound(plane.Client().Patch(ctx, k, patch))).To(Succeed())
		remove(ctx, k)
		gone(ctx, k)
	})
	return k
}

func get(ctx context.Context, o client.Object) error {
	return plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

// change patches an object, whatever the controller writes at the same time.
func change(ctx context.Context, o client.Object, patch string) {
	GinkgoHelper()
	Expect(plane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func remove(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(plane.Client().Delete(ctx, o))).To(Succeed())
}

func gone(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Eventually(ctx, func() bool { return apierrors.IsNotFound(get(ctx, o)) }, soon).Should(BeTrue(),
		"%T %s is removed", o, o.GetName())
}

// kindReady waits until a KsctlKind serves a revision.
func kindReady(ctx context.Context, k *appsv1.KsctlKind, revision string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		err := get(ctx, k)
		c := ptr.Deref(apimeta.FindStatusCondition(k.Status.Conditions, appsv1.ReadyCondition), metav1.Condition{})
		return string(c.Status) + " " + k.Status.LastAppliedRevision + " " + c.Message, err
	}, soon).Should(HavePrefix("True "+revision+" "), "the kind is served")
}

// shop returns an object of a kind.
func shop(kind, ns, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": group + "/v1alpha1", "kind": kind,
		"spec": spec}}
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

// newShop creates an object of a kind.
func newShop(ctx context.Context, kind, ns, name string, spec map[string]any) *unstructured.Unstructured {
	GinkgoHelper()
	u := shop(kind, ns, name, spec)
	Expect(plane.Client().Create(ctx, u)).To(Succeed())
	return u
}

// condition returns a condition of an object as "status reason: message".
func condition(u *unstructured.Unstructured, conditionType string) string {
	var o struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		return err.Error()
	}
	c := ptr.Deref(apimeta.FindStatusCondition(o.Status.Conditions, conditionType), metav1.Condition{})
	if c.ObservedGeneration != u.GetGeneration() {
		return "of an earlier generation"
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// shopBecomes waits until the Ready condition of an object has a prefix.
func shopBecomes(ctx context.Context, u *unstructured.Unstructured, ready string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		err := get(ctx, u)
		return condition(u, "Ready"), err
	}, soon).Should(HavePrefix(ready))
}

// definition returns the CustomResourceDefinition with a name, without its content.
func definition(name string) *metav1.PartialObjectMetadata {
	d := &metav1.PartialObjectMetadata{}
	d.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	d.Name = name
	return d
}
