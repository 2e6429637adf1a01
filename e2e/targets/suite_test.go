// Package targets_test installs stacks to another control plane, whose credentials are rotated,
// which is stopped, and whose objects are pruned.
package targets_test

import (
	"context"
	"encoding/base64"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 4 * time.Minute

var (
	h *harness.Harness
	// remote is the other control plane.
	remote *cluster.Cluster
	git    *gitserver.Server
	// controller is the controller of the suite.
	controller *framework.Controller
	// scanner collects the output of the controller and searches it for secrets.
	scanner = &leakscan.Scanner{}
)

func TestTargets(t *testing.T) {
	suite.Run(t, "Targets")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.StartScanned(ctx, cluster.Options{Nodes: -1, NoScheduler: true}, scanner)
	remote = startCluster(ctx)
	worker, err := h.Build(ctx, programs.SOPSWorker)
	Expect(err).NotTo(HaveOccurred())
	controller = framework.StartController(h, "--sops-worker="+worker)
	git = framework.GitServer()
}, NodeTimeout(20*time.Minute))

// restart stops the controller, calls meanwhile, and starts a controller with an empty disk.
func restart(meanwhile func()) {
	GinkgoHelper()
	Expect(controller.Stop()).To(Succeed())
	meanwhile()
	controller.Start()
}

// startCluster starts a further control plane. Specs start one that they stop, or that replaces
// another.
func startCluster(ctx context.Context) *cluster.Cluster {
	GinkgoHelper()
	plane := framework.StartCluster(ctx, cluster.Options{Nodes: -1, NoScheduler: true, Audit: true})
	scanner.AddSecret(base64.StdEncoding.EncodeToString(plane.Config().KeyData))
	return plane
}

// createNamespaces creates a namespace with an account here, and one on the other control plane.
func createNamespaces(ctx context.Context) (here, there string) {
	GinkgoHelper()
	return createNamespacesOn(ctx, remote)
}

// createNamespacesOn is like createNamespaces, for a given control plane.
func createNamespacesOn(ctx context.Context, plane *cluster.Cluster) (here, there string) {
	GinkgoHelper()
	there, err := plane.Namespace(ctx, "there")
	Expect(err).NotTo(HaveOccurred())
	return framework.Namespace(ctx, h, "targets"), there
}

// kubeconfig returns the administrator's kubeconfig of a control plane.
func kubeconfig(plane *cluster.Cluster) string {
	GinkgoHelper()
	data, err := os.ReadFile(plane.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}

// userKubeconfig returns a kubeconfig of a user of the other control plane.
func userKubeconfig(name string, config *rest.Config) string {
	GinkgoHelper()
	path, err := remote.WriteKubeconfig(name, config)
	Expect(err).NotTo(HaveOccurred())
	data, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	scanner.AddSecret(base64.StdEncoding.EncodeToString(config.KeyData))
	return string(data)
}

// createProdCluster creates a KsctlCluster "prod" of the other control plane.
func createProdCluster(ctx context.Context, ns string) *clusterv1.KsctlCluster {
	GinkgoHelper()
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prod"},
		StringData: map[string]string{"value": kubeconfig(remote)}})
	c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prod"},
		Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "prod"},
			ServiceAccountName: harness.Deployer}}
	create(ctx, c)
	return c
}

// install returns an install for the cluster "prod".
func install(ns, name, there string) *appsv1.KsctlInstall {
	in := harness.NewInstall(ns, name)
	in.Spec.ClusterRef, in.Spec.TargetNamespace = &appsv1.ClusterReference{Name: "prod"}, there
	return in
}

// publish publishes a stack of ConfigMaps, each with a value.
func publish(ctx context.Context, ns, revision string, values map[string]string) {
	GinkgoHelper()
	files := map[string]string{}
	for name, value := range values {
		files["main/"+name+".yaml"] = configMap(name, value)
	}
	Expect(h.PublishSource(ctx, ns, "src", revision, harness.SourceTree(harness.OneComponent, files))).To(Succeed())
}

func configMap(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {word: " + value + "}\n"
}

func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Create(ctx, o)).To(Succeed())
}

func patch(ctx context.Context, c client.Client, o client.Object, body string) {
	GinkgoHelper()
	Expect(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)))).To(Succeed())
}

// readySummary returns a function for Eventually with status, reason and message of the Ready
// condition of an object; "" until it is of the current generation.
func readySummary(ctx context.Context, o interface {
	client.Object
	CommonStatus() *appsv1.CommonStatus
},
) func() (string, error) {
	return func() (string, error) {
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, appsv1.ReadyCondition)
		if c == nil || c.ObservedGeneration != o.GetGeneration() {
			return "", nil
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message, nil
	}
}

// configMapValues returns a function for Eventually with the values of the ConfigMaps of a
// namespace, except that of Kubernetes.
func configMapValues(ctx context.Context, c client.Client, ns string) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		var list corev1.ConfigMapList
		err := c.List(ctx, &list, client.InNamespace(ns))
		out := map[string]string{}
		for i := range list.Items {
			if name := list.Items[i].Name; !strings.HasPrefix(name, "kube-") {
				out[name] = list.Items[i].Data["word"]
			}
		}
		return out, err
	}
}

func absent(ctx context.Context, c client.Client, o client.Object) func() bool {
	return func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(o), o)) }
}
