// Package targets_test installs stacks to another control plane, which is rotated, stopped
// and pruned under the controller.
package targets_test

import (
	"context"
	"encoding/base64"
	"io"
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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/witness"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon is how long anything in these specs may take; it takes far less.
const soon = 4 * time.Minute

var (
	h *harness.Harness
	// remote is another control plane.
	remote *cluster.Cluster
	git    *gitserver.Server
	// running is the controller, with its flags.
	running *harness.Controller
	flags   []string
	// heard is told what the controller tells.
	heard = &witness.Witness{}
)

func TestTargets(t *testing.T) {
	suite.Run(t, "Targets")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(io.MultiWriter(GinkgoWriter, heard.Writer(witness.Log)))))
	var err error
	h, err = harness.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	remote, err = cluster.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return remote.Stop() })
	heard.Secret(base64.StdEncoding.EncodeToString(remote.Config().KeyData))
	watching, err := client.NewWithWatch(h.Plane.Config(), client.Options{Scheme: h.Plane.Client().Scheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(heard.Watch(ctx, watching)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(heard.Process()).To(Succeed())
		Expect(heard.Verdict(ctx)).To(Succeed())
	})
	worker, err := h.SOPSWorker(ctx)
	Expect(err).NotTo(HaveOccurred())
	flags = []string{"--sops-worker=" + worker}
	running, err = h.StartController(flags...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return running.Stop() })
	git, err = gitserver.New(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(git.Close)
}, NodeTimeout(20*time.Minute))

// restart ends the controller, and starts another with an empty disk. Nobody is there meanwhile.
func restart(meanwhile func()) {
	GinkgoHelper()
	Expect(running.Stop()).To(Succeed())
	meanwhile()
	var err error
	running, err = h.StartController(flags...)
	Expect(err).NotTo(HaveOccurred())
}

// another is one more control plane, for a spec that stops it or has it take the place of another.
func another(ctx context.Context) *cluster.Cluster {
	GinkgoHelper()
	plane, err := cluster.Start(ctx, cluster.Options{Nodes: -1, NoScheduler: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	heard.Secret(base64.StdEncoding.EncodeToString(plane.Config().KeyData))
	return plane
}

// namespaces makes a namespace with an account here, and one there.
func namespaces(ctx context.Context) (here, there string) {
	GinkgoHelper()
	return namespacesOn(ctx, remote)
}

// namespacesOn is namespaces with the one there on some control plane.
func namespacesOn(ctx context.Context, plane *cluster.Cluster) (here, there string) {
	GinkgoHelper()
	here, err := h.Namespace(ctx, "targets")
	Expect(err).NotTo(HaveOccurred())
	there, err = plane.Namespace(ctx, "there")
	Expect(err).NotTo(HaveOccurred())
	return here, there
}

// kubeconfig is one that leads to a control plane.
func kubeconfig(plane *cluster.Cluster) string {
	GinkgoHelper()
	data, err := os.ReadFile(plane.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}

// kubeconfigOf is that of a user.
func kubeconfigOf(name string, config *rest.Config) string {
	GinkgoHelper()
	path, err := remote.WriteKubeconfig(name, config)
	Expect(err).NotTo(HaveOccurred())
	data, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	heard.Secret(base64.StdEncoding.EncodeToString(config.KeyData))
	return string(data)
}

// prod makes a KsctlCluster of the other control plane.
func prod(ctx context.Context, ns string) *clusterv1.KsctlCluster {
	GinkgoHelper()
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prod"}, StringData: map[string]string{"value": kubeconfig(remote)}})
	c := &clusterv1.KsctlCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prod"},
		Spec: clusterv1.KsctlClusterSpec{KubeConfigRef: &clusterv1.KubeConfigRef{Name: "prod"}, ServiceAccountName: harness.Deployer}}
	create(ctx, c)
	return c
}

// install is one for the cluster "prod".
func install(ns, name, there string) *appsv1.KsctlInstall {
	in := harness.Install(ns, name)
	in.Spec.ClusterRef, in.Spec.TargetNamespace = &appsv1.ClusterReference{Name: "prod"}, there
	return in
}

// offer publishes a stack of ConfigMaps, each with a word.
func offer(ctx context.Context, ns, revision string, words map[string]string) {
	GinkgoHelper()
	files := map[string]string{}
	for name, word := range words {
		files["main/"+name+".yaml"] = configMap(name, word)
	}
	Expect(h.Publish(ctx, ns, "src", revision, harness.Tree(harness.OneComponent, files))).To(Succeed())
}

func configMap(name, word string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {word: " + word + "}\n"
}

func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(h.Plane.Client().Create(ctx, o)).To(Succeed())
}

func patch(ctx context.Context, c client.Client, o client.Object, body string) {
	GinkgoHelper()
	Expect(c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)))).To(Succeed())
}

// stands is how an object of ours stands at its spec.
func stands(ctx context.Context, o interface {
	client.Object
	CommonStatus() *appsv1.CommonStatus
},
) func() (string, error) {
	return func() (string, error) {
		if err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, appsv1.ReadyCondition)
		if c == nil || c.ObservedGeneration != o.GetGeneration() {
			return "", nil
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message, nil
	}
}

// words are those of the ConfigMaps of a namespace that are ours.
func words(ctx context.Context, c client.Client, ns string) func() (map[string]string, error) {
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
