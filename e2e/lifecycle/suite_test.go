// Package lifecycle_test records every version of an object of our kinds and compares the kstatus
// result of each with its conditions. kubectl wait, Flux and tools based on them depend on kstatus.
package lifecycle_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

// waitTimeout bounds each wait in these specs; normally a wait takes far less.
const waitTimeout = 4 * time.Minute

var (
	h   *harness.Harness
	git *gitserver.Server
)

func TestLifecycle(t *testing.T) {
	suite.Run(t, "Lifecycle")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.Start(ctx, cluster.Options{})
	framework.StartController(h)
	git = framework.GitServer()
})

func namespace(ctx context.Context) string {
	GinkgoHelper()
	return framework.Namespace(ctx, h, "lives")
}

// patch applies a JSON merge patch to an object.
func patch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(body)))).
		To(Succeed())
}

// finalizersPatch sets the finalizers of an object. A foreign finalizer keeps the object, so that
// it has a terminating version.
const finalizersPatch = `{"metadata":{"finalizers":%s}}`
