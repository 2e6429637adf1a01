// Package lives_test records every version that the API server has of an object of our
// kinds, and holds what kstatus makes of each, and with it kubectl wait, Flux and
// everybody who builds on them, against what was so.
package lives_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// soon is how long anything in these specs may take; it takes far less.
const soon = 4 * time.Minute

var (
	h   *harness.Harness
	git *gitserver.Server
)

func TestLives(t *testing.T) {
	suite.Run(t, "Lives")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	h, err = harness.Start(ctx, cluster.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return h.Stop() })
	c, err := h.StartController()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return c.Stop() })
	git, err = gitserver.New(GinkgoT().TempDir())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(git.Close)
})

func namespace(ctx context.Context) string {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, "lives")
	Expect(err).NotTo(HaveOccurred())
	return ns
}

// change patches an object as a commit, or a person, would.
func change(ctx context.Context, o client.Object, patch string) {
	GinkgoHelper()
	Expect(h.Plane.Client().Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(Succeed())
}

// hold keeps an object there, so that there is a version of it that goes.
const hold = `{"metadata":{"finalizers":%s}}`
