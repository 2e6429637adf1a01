// Package charts_test compares the life of small charts, one for each behavior, that Helm and we
// install on one API server. docs/helm.md has a table of what differs on purpose.
package charts_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

const (
	// soon bounds every wait in these specs. An unloaded machine needs far less.
	soon = 4 * time.Minute
	// quiet is a period in which nothing may happen.
	quiet = 500 * time.Millisecond
	poll  = 50 * time.Millisecond
)

var h *harness.Harness

func TestCharts(t *testing.T) {
	suite.Run(t, "Charts")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	// In etcd, objects are JSON: all of them are read at once, and not through the audit log.
	h = framework.Start(ctx, cluster.Options{Audit: true,
		APIServerFlags: []string{"--storage-media-type=application/json"}})
	framework.StartController(h)
})

func namespace(ctx context.Context) string {
	GinkgoHelper()
	return framework.Namespace(ctx, h, "charts")
}

func auditMark(ctx context.Context) cluster.Mark {
	GinkgoHelper()
	mark, err := h.ControlPlane.AuditMark(ctx)
	Expect(err).NotTo(HaveOccurred())
	return mark
}

func eventually(ctx context.Context, check func() error, why string) {
	GinkgoHelper()
	Eventually(ctx, check, soon, poll).Should(Succeed(), why)
}
