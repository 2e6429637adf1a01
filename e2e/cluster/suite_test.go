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

// soon is how long anything in these specs may take; it takes far less.
const soon = 2 * time.Minute

// plane is the cluster that all specs share; each works in its own namespace.
var plane *cluster.Cluster

// childVariable makes the test program start a cluster, say where, and wait to
// be killed, instead of running specs.
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
	plane, err = cluster.Start(ctx, cluster.Options{Audit: true, Nodes: 2, CRDPaths: []string{"testdata/crds"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	AddReportEntry("start-up", time.Since(began).Round(time.Millisecond).String(), ReportEntryVisibilityAlways)
})

// namespace makes a namespace for one spec and deletes it afterwards.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	name, err := plane.Namespace(ctx, "rig")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) {
		Expect(plane.Client().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	})
	return name
}
