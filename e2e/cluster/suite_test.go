package cluster_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

// waitTimeout bounds each wait in these specs; normally a wait takes far less.
const waitTimeout = 2 * time.Minute

// controlPlane is shared by all specs; each spec uses its own namespace.
var controlPlane *cluster.Cluster

// childVariable is an environment variable that makes the test binary start a cluster, print its
// folder, and wait until it is killed, instead of running specs.
const childVariable = "KSCTL_E2E_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		c, err := cluster.Start(context.Background(), cluster.Options{Nodes: -1})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.Dir())
		select {}
	}
	os.Exit(m.Run())
}

func TestCluster(t *testing.T) {
	suite.Run(t, "Cluster")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	began := time.Now()
	var err error
	controlPlane, err = cluster.Start(ctx, cluster.Options{Audit: true, Nodes: 2, CRDPaths: []string{"testdata/crds"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controlPlane.Stop)
	AddReportEntry("start-up", time.Since(began).Round(time.Millisecond).String(), ReportEntryVisibilityAlways)
})

// namespace creates a namespace for one spec and deletes it afterwards.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	name, err := controlPlane.Namespace(ctx, "cluster")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(controlPlane.Client().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).
			To(Succeed())
	})
	return name
}
