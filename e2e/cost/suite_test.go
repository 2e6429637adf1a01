// Package cost_test checks in the API server's audit log that cost is proportional to change.
package cost_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

const (
	soon = 5 * time.Minute
	// long bounds waits for thousands of objects.
	long = 10 * time.Minute
)

var h *harness.Harness

func TestCost(t *testing.T) {
	suite.Run(t, "Cost")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	h = framework.Start(ctx, cluster.Options{Audit: true, Nodes: -1, NoScheduler: true})
})

// startController starts a controller for the installs of one spec.
func startController(name string, flags ...string) *framework.Controller {
	GinkgoHelper()
	return framework.StartController(h,
		append([]string{"--owner-id=" + name, "--watch-label-selector=spec=" + name}, flags...)...)
}

// install creates an install for the controller of a spec.
func install(ctx context.Context, spec, ns, name string) *appsv1.KsctlInstall {
	GinkgoHelper()
	in := harness.NewInstall(ns, name)
	in.Labels = map[string]string{"spec": spec}
	Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
	return in
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, value)
}

// atRevision waits until an install is ready at a revision.
func atRevision(ctx context.Context, in *appsv1.KsctlInstall, revision string) {
	GinkgoHelper()
	atRevisionWithin(ctx, soon, in, revision)
}

func atRevisionWithin(ctx context.Context, timeout time.Duration, in *appsv1.KsctlInstall, revision string) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in); err != nil {
			return err
		}
		if c := harness.ReadyCondition(in); c.Status != "True" || in.Status.LastAppliedRevision != revision {
			return fmt.Errorf("at %q, Ready is %s/%s: %s", in.Status.LastAppliedRevision, c.Status, c.Reason, c.Message)
		}
		return nil
	}, timeout, 20*time.Millisecond).Should(Succeed(), "the install is ready at %s", revision)
}

// ours returns the requests of the controller and of the accounts that it impersonates, without
// those that are not counted: watches, leases, events, and discovery, which continues for a while
// after a start.
func ours(rs cluster.Requests) cluster.Requests {
	return rs.Where(cluster.ByUser(cluster.ServiceAccountUser(harness.SystemNamespace, harness.ServiceAccount))).
		Without(cluster.Watch, cluster.Lease, cluster.Resource("events"), cluster.Discovery)
}

// requestAll requests a reconcile of each install and waits until the requests are handled.
func requestAll(ctx context.Context, installs []*appsv1.KsctlInstall, token string) {
	GinkgoHelper()
	for _, in := range installs {
		patch := client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, token))
		Expect(h.ControlPlane.Client().Patch(ctx, in, patch)).To(Succeed())
	}
	for _, in := range installs {
		Eventually(ctx, func() (string, error) {
			err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(in), in)
			return in.Status.LastHandledReconcileAt, err
		}, soon, 20*time.Millisecond).Should(Equal(token), "the request is handled")
	}
}
