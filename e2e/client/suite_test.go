// Package client_test uses the generated clients on a real API server.
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

// soon is how long anything in these specs may take; it takes far less.
const soon = 4 * time.Minute

var (
	plane *cluster.Cluster
	// clients are those of a program that knows this API alone.
	clients versioned.Interface
)

func TestClient(t *testing.T) {
	suite.Run(t, "Client")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	plane, err = cluster.Start(ctx, cluster.Options{NoControllerManager: true, CRDPaths: []string{"../../config/crd/bases"}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(plane.Stop)
	clients, err = versioned.NewForConfig(plane.Config())
	Expect(err).NotTo(HaveOccurred())
})

// namespace makes one for one spec.
func namespace(ctx context.Context) string {
	GinkgoHelper()
	ns, err := plane.Namespace(ctx, "client")
	Expect(err).NotTo(HaveOccurred())
	return ns
}
