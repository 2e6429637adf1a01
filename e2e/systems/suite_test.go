// Package systems_test runs the kinds of the catalog on a real node: the examples of their pages
// are applied as they are, but for the addresses of servers.
package systems_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/node/machine"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait, including image pulls. An unloaded machine needs far less.
const soon = 5 * time.Minute

// groups are the API groups that the controller may serve kinds in.
var groups = []string{"charts.samutup.com", "example.com", "dynamoctl.dp.operators.sanjivmadhavan.io",
	"workers.ksctl.com"}

var (
	h          *harness.Harness
	plane      *cluster.Cluster
	controller *framework.Controller
	images     *registry.Server
	node       *machine.Node
	scanner    = &leakscan.Scanner{}
)

func TestSystems(t *testing.T) {
	machine.Require(t)
	suite.Run(t, "Systems")
}

// imageHosts are the registries of the images in the examples and in the catalog.
var imageHosts = []string{"registry.example.com", "ghcr.io", "docker.io"}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	images, err = registry.New()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return images.Close() })
	pause := push(ctx, "pause:e2e", "e2e/node/testdata/pause")
	for _, tag := range []string{"minimart:1.0.0", "otel/opentelemetry-collector-k8s:0.140.0",
		"otel/opentelemetry-collector-k8s:0.141.0"} {
		push(ctx, tag, "e2e/systems/testdata/minimart")
	}
	push(ctx, "ksctl/gitops/dynamodb-partition:0.1.0", "cmd/dynamodb-partition")

	disconnect, err := machine.Connect(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return disconnect(ctx) })
	h = framework.StartScanned(ctx, machine.ClusterOptions(), scanner)
	plane = h.ControlPlane
	mirrors := map[string]string{}
	for _, host := range imageHosts {
		mirrors[host] = images.Host()
	}
	node, err = machine.Start(ctx, h, machine.Options{Pause: pause, Mirrors: mirrors})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) error { return node.Stop(ctx) })

	Expect(plane.Apply(ctx, harness.RepoPath("config/kinds/role.yaml"))).To(Succeed())
	Expect(plane.Apply(ctx, harness.RepoPath("config/kinds/role_binding.yaml"))).To(Succeed())
	Expect(plane.ApplyYAML(ctx, []byte(strings.ReplaceAll(groupRule, "GROUPS", strings.Join(groups, ", "))))).
		To(Succeed())
	controller = framework.StartController(h, "--kind-groups="+strings.Join(groups, ","))
}, NodeTimeout(30*time.Minute))

// groupRule lets the controller grant what it serves, as docs/kinds.md describes.
const groupRule = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: ksctl-gitops-kinds-test}
rules: [{apiGroups: [GROUPS], resources: ["*"], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ksctl-gitops-kinds-test}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ksctl-gitops-kinds-test}
subjects: [{kind: ServiceAccount, name: ksctl-gitops, namespace: ksctl-gitops-system}]
`

var _ = JustAfterEach(func() {
	if CurrentSpecReport().Failed() {
		GinkgoWriter.Println(node.LogTails())
		logs, _ := filepath.Glob(filepath.Join(node.PodLogs(), "*", "*", "*.log"))
		for _, path := range logs {
			if content, err := os.ReadFile(path); err == nil {
				GinkgoWriter.Printf("%s:\n%s\n", path, content[max(0, len(content)-4<<10):])
			}
		}
	}
})

// push pushes an image of a program of this repository, and returns its reference.
func push(ctx context.Context, tag, folder string) string {
	GinkgoHelper()
	ref, err := machine.PushProgram(ctx, images.Host()+"/"+tag, "github.com/ksctl/gitops/"+folder)
	Expect(err).NotTo(HaveOccurred())
	return ref
}

// example returns a file of the example in a page, with some texts replaced.
func example(page, heading, file string, replace ...string) string {
	GinkgoHelper()
	files, err := harness.YAMLFiles("docs/"+page, heading)
	Expect(err).NotTo(HaveOccurred())
	Expect(files).To(HaveKey(file))
	return strings.NewReplacer(replace...).Replace(files[file])
}

func apply(ctx context.Context, manifest string) {
	GinkgoHelper()
	Expect(plane.ApplyYAML(ctx, []byte(manifest))).To(Succeed())
}

// publish applies a KsctlKind and waits until it serves its kind. At the end of the specs, it
// removes the kind with its objects, and checks that a namespace has nothing of it.
func publish(ctx context.Context, name, manifest, namespace string) {
	GinkgoHelper()
	apply(ctx, manifest)
	kind := object(appsv1.GroupVersion.WithKind("KsctlKind"), "", name)
	DeferCleanup(func(ctx SpecContext) {
		change(ctx, kind, `{"spec": {"deletionPolicy": "Delete"}}`)
		remove(ctx, kind)
		gone(ctx, kind)
		nothingLeft(ctx, namespace)
		var events corev1.EventList
		Expect(plane.Client().List(ctx, &events)).To(Succeed())
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == kind.GetKind() && e.InvolvedObject.Name == name {
				Expect(e.Type).NotTo(Equal(corev1.EventTypeWarning), e.Message)
			}
		}
	})
	becomes(ctx, kind, "Ready", "True ")
}

// nothingLeft waits until a namespace has no object of an example.
func nothingLeft(ctx context.Context, namespace string) {
	GinkgoHelper()
	Eventually(ctx, func() (out []string, err error) {
		for _, gvk := range []schema.GroupVersionKind{
			{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "apps", Version: "v1", Kind: "ReplicaSet"},
			{Group: "batch", Version: "v1", Kind: "Job"}, {Version: "v1", Kind: "Pod"},
			{Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ConfigMap"},
			{Version: "v1", Kind: "ServiceAccount"},
			{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
			{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
			{Group: "apps.ksctl.com", Version: "v1", Kind: "KsctlInventory"},
		} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			if err := plane.Client().List(ctx, list, client.InNamespace(namespace)); err != nil {
				return nil, err
			}
			for _, o := range list.Items {
				out = append(out, gvk.Kind+"/"+o.GetName())
			}
		}
		return out, nil
	}, soon).Should(HaveEach(BeElementOf("ConfigMap/kube-root-ca.crt", "ServiceAccount/default",
		"ServiceAccount/minimart", "ServiceAccount/collector", "ServiceAccount/ddbctl")),
		"only the accounts of the example are left")
}

func object(gvk schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
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
		"%s %s is removed", o.GetObjectKind().GroupVersionKind().Kind, o.GetName())
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

// becomes waits until a condition of an object has a prefix.
func becomes(ctx context.Context, u *unstructured.Unstructured, conditionType, want string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		err := get(ctx, u)
		return condition(u, conditionType), err
	}, soon).Should(HavePrefix(want), "%s %s", u.GetKind(), u.GetName())
}

// comesBack deletes an object by hand and waits until there is another one.
func comesBack(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(get(ctx, o)).To(Succeed())
	uid := o.GetUID()
	remove(ctx, o)
	Eventually(ctx, func() (bool, error) {
		err := get(ctx, o)
		return err == nil && o.GetUID() != uid, client.IgnoreNotFound(err)
	}, soon).Should(BeTrue(), "%T %s is created again", o, o.GetName())
}

// restart restarts the controller, with an empty disk.
func restart() {
	GinkgoHelper()
	Expect(controller.Stop()).To(Succeed())
	controller.Start()
}

// status returns the status of an object as JSON.
func status(u *unstructured.Unstructured) string {
	GinkgoHelper()
	raw, err := json.Marshal(u.Object["status"])
	Expect(err).NotTo(HaveOccurred())
	return string(raw)
}

// readyPods returns the number of pods with a label that are ready.
func readyPods(ctx context.Context, namespace, label, value string) (ready int, err error) {
	var pods corev1.PodList
	err = plane.Client().List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{label: value})
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp.IsZero() {
				ready++
			}
		}
	}
	return ready, err
}
