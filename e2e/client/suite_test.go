// Package client_test tests the generated clients against a real API server.
package client_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/api/client/clientset/versioned"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/suite"
)

// waitTimeout bounds each wait in these specs; normally a wait takes far less.
const waitTimeout = 4 * time.Minute

var (
	controlPlane *cluster.Cluster
	// clientset is the generated clientset, which has no other kinds.
	clientset versioned.Interface
)

func TestClient(t *testing.T) {
	suite.Run(t, "Client")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	controlPlane, err = cluster.Start(ctx,
		cluster.Options{NoControllerManager: true, CRDPaths: []string{"../../config/crd/bases"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controlPlane.Stop)
	clientset, err = versioned.NewForConfig(controlPlane.Config())
	Expect(err).NotTo(HaveOccurred())
})

// namespace creates a namespace for one spec.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	ns, err := controlPlane.Namespace(ctx, "client")
	Expect(err).NotTo(HaveOccurred())
	return ns
}
