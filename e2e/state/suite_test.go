// Package state_test imports states that ksctl exported into ksctl's own store on a real API
// server: from Git, encrypted, and concurrently with ksctl, which writes to the same store.
package state_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/stacks/state"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 4 * time.Minute

var (
	h   *harness.Harness
	git *gitserver.Server

	// controller is the controller of the suite.
	controller *framework.Controller
)

// restart stops the controller and starts a new one.
func restart() {
	GinkgoHelper()
	Expect(controller.Stop()).To(Succeed())
	controller.Start()
}

// scanner collects the output of the controller and searches it for secrets.
var scanner = &leakscan.Scanner{}

func TestState(t *testing.T) {
	suite.Run(t, "State")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	registerSecrets()
	h = framework.StartScanned(ctx, cluster.Options{Nodes: -1, NoScheduler: true}, scanner)
	worker, err := h.Build(ctx, programs.SOPSWorker)
	Expect(err).NotTo(HaveOccurred())
	create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: argocd}})
	controller = framework.StartController(h, "--sops-worker="+worker, "--argocd-namespaces="+argocd)
	git = framework.GitServer()
}, NodeTimeout(20*time.Minute))

// fixtures is the folder of documents of all formats.
const fixtures = "../../stacks/state/testdata"

func fixture(name string) []byte {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(fixtures, name))
	Expect(err).NotTo(HaveOccurred())
	return data
}

// registerSecrets registers the secrets of the fixtures with the scanner, except short ones,
// which would match by chance.
func registerSecrets() {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join(fixtures, "*.json"))
	Expect(err).NotTo(HaveOccurred())
	n := 0
	for _, name := range files {
		data, err := os.ReadFile(name)
		Expect(err).NotTo(HaveOccurred())
		var tree any
		Expect(json.Unmarshal(data, &tree)).To(Succeed())
		pointers, err := state.SecretPointers(data)
		Expect(err).NotTo(HaveOccurred())
		for _, at := range pointers {
			value, ok := lookUp(tree, at).(string)
			if ok && len(value) >= 8 && value != "apiVersion: v1\n" {
				scanner.AddSecret(value)
				n++
			}
		}
	}
	Expect(n).To(BeNumerically(">", 10))
}

func namespace(ctx context.Context) string {
	GinkgoHelper()
	return framework.Namespace(ctx, h, "state")
}

// publish publishes files as the source "src".
func publish(ctx context.Context, ns, revision string, files map[string]string) {
	GinkgoHelper()
	Expect(h.PublishSource(ctx, ns, "src", revision, artifacts.Files(files))).To(Succeed())
}

// newImport returns an ImportState of the source "src" into a store in its own namespace.
func newImport(ns string, change ...func(*v1alpha1.ImportStateSpec)) *v1alpha1.ImportState {
	hour := &metav1.Duration{Duration: time.Hour}
	in := &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "import"},
		Spec: v1alpha1.ImportStateSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
			SourceRef: &appsv1.SourceRef{Kind: "KsctlSource", Name: "src"}, Path: "clusters", AllowPlaintext: true,
			Store:              &v1alpha1.ImportStore{StateStore: v1alpha1.StateStore{Namespace: ns}},
			ServiceAccountName: harness.Deployer}}
	for _, f := range change {
		f(&in.Spec)
	}
	return in
}

func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Create(ctx, o)).To(Succeed())
}

// patch changes an object like a commit does.
func patch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)))).To(Succeed())
}

// importReady returns a function for Eventually with status, reason and message of an import's
// Ready condition; "" until it is of the current generation.
func importReady(ctx context.Context, in *v1alpha1.ImportState) func() (string, error) {
	return func() (string, error) {
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in); err != nil {
			return "", err
		}
		c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
		if c == nil || c.ObservedGeneration != in.Generation {
			return "", nil
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message, nil
	}
}

// stored returns the states in the store of a namespace, in canonical form.
func stored(ctx context.Context, ns string) map[string]string {
	GinkgoHelper()
	var cm corev1.ConfigMap
	err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: state.StoreConfigMap}, &cm)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	out := map[string]string{}
	for key, data := range cm.BinaryData {
		out[key] = canonical(data)
	}
	return out
}

func canonical(data []byte) string {
	GinkgoHelper()
	c, err := state.Canonical(data)
	Expect(err).NotTo(HaveOccurred())
	return string(c)
}
