// Package agent_test runs our agent as a process, with its shipped permissions, on a real API
// server. Machines are fake nodes; pods, disruption budgets and evictions are real.
package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/programs"
	"github.com/ksctl/gitops/e2e/suite"
	"github.com/ksctl/gitops/internal/agent/provisioner/kwok"
)

// soon bounds every wait in these specs. An unloaded machine needs far less.
const soon = 2 * time.Minute

var (
	plane *cluster.Cluster
	// binary is the agent. kubeconfig has its shipped permissions.
	binary, kubeconfig string
)

func TestAgent(t *testing.T) {
	suite.Run(t, "Agent")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true), zap.WriteTo(GinkgoWriter)))
	var err error
	binary, err = programs.Build(ctx, GinkgoT().TempDir(), programs.Agent)
	Expect(err).NotTo(HaveOccurred())
	plane, err = cluster.Start(ctx, cluster.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return plane.Stop() })
	Expect(plane.Apply(ctx, "../../config/agent-kwok")).To(Succeed())
	kubeconfig, err = plane.KubeconfigFor(ctx, "ksctl", "ksctl-agent")
	Expect(err).NotTo(HaveOccurred())
	Expect(plane.AwaitPermission(ctx, cluster.ServiceAccountUser("ksctl", "ksctl-agent"),
		authorizationv1.ResourceAttributes{Verb: "create", Resource: "nodes"})).To(Succeed())
}, NodeTimeout(20*time.Minute))

var clusters atomic.Int32

// testCluster is the cluster of one spec. Its machines are fake nodes of the shared control
// plane.
type testCluster struct {
	name   string
	config string
	folder string
	agent  *process
}

// newTestCluster creates a cluster with a number of workers of the size medium.
func newTestCluster(ctx context.Context, workers uint32, flags ...string) *testCluster {
	GinkgoHelper()
	r := &testCluster{name: fmt.Sprintf("c%d", clusters.Add(1)), folder: GinkgoT().TempDir()}
	r.config = filepath.Join(r.folder, "knobs.json")
	DeferCleanup(func(ctx SpecContext) {
		Expect(plane.Client().DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{kwok.ClusterLabel: r.name})).
			To(Succeed())
	})
	r.start(ctx, flags...)
	if workers > 0 {
		Expect(r.run(ctx, "first", 0, workers)).To(HaveSucceeded())
		r.awaitReady(ctx)
	}
	return r
}

// start runs the agent of the cluster, without TLS unless the first flag is --tls.
func (r *testCluster) start(ctx context.Context, flags ...string) {
	GinkgoHelper()
	defaults := []string{"--cluster-name=" + r.name, "--provisioner=kwok", "--provisioner-arg=--config=" + r.config}
	if len(flags) == 0 || flags[0] != "--tls" {
		defaults = append(defaults, "--plaintext")
	} else {
		flags = flags[1:]
	}
	r.agent = startProcess(ctx, r.folder, append(defaults, flags...)...)
	DeferCleanup(r.agent.kill)
	r.agent.awaitReady(ctx)
}

// configure writes the configuration of the provisioner, which defines its faults.
func (r *testCluster) configure(config string) {
	GinkgoHelper()
	Expect(os.WriteFile(r.config+".new", []byte(config), 0o600)).To(Succeed())
	Expect(os.Rename(r.config+".new", r.config)).To(Succeed())
}

// nodes returns the nodes of the cluster in the order of their index.
func (r *testCluster) nodes(ctx context.Context) []corev1.Node {
	GinkgoHelper()
	var list corev1.NodeList
	Expect(plane.Client().List(ctx, &list, client.MatchingLabels{kwok.ClusterLabel: r.name})).To(Succeed())
	return list.Items
}

// indexes returns the indexes of the existing machines, from their nodes.
func (r *testCluster) indexes(ctx context.Context) []int {
	GinkgoHelper()
	out := []int{}
	for _, n := range r.nodes(ctx) {
		var index int
		_, err := fmt.Sscanf(n.Name, r.name+"-vm-wp-%d-", &index)
		Expect(err).NotTo(HaveOccurred())
		out = append(out, index)
	}
	return out
}

// node returns the node of a worker.
func (r *testCluster) node(ctx context.Context, index int) *corev1.Node {
	GinkgoHelper()
	for _, n := range r.nodes(ctx) {
		var have int
		if _, err := fmt.Sscanf(n.Name, r.name+"-vm-wp-%d-", &have); err == nil && have == index {
			return &n
		}
	}
	Fail(fmt.Sprintf("there is no node of worker %d", index))
	return nil
}

// awaitReady waits until all nodes are schedulable.
func (r *testCluster) awaitReady(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		for _, n := range r.nodes(ctx) {
			g.Expect(n.Spec.Taints).To(BeEmpty())
			g.Expect(n.Status.Conditions).
				To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
		}
	}).WithTimeout(soon).Should(Succeed())
}

// namespace creates a namespace for the pods of a spec.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	name, err := plane.Namespace(ctx, "agent")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(plane.Client().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	})
	return name
}

func create(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(plane.Client().Create(ctx, o)).To(Succeed())
}
