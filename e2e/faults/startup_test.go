package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/harness/leakscan"
)

// traffic counts the writes through a proxy, and the maximum of concurrent writes.
type traffic struct {
	mu                   sync.Mutex
	current, peak, total int
}

func (t *traffic) count(w http.ResponseWriter, r *http.Request, next http.Handler) {
	t.mu.Lock()
	t.total++
	t.current++
	t.peak = max(t.peak, t.current)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.current--
	}()
	next.ServeHTTP(w, r)
}

func (t *traffic) totals() (total, peak int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total, t.peak
}

var _ = Describe("Many installs at the start of the controller", func() {
	It("are reconciled a few at a time, with the minimum of writes, and without writes at the "+
		"next start", func(ctx SpecContext) {
		const n, atOnce = 500, 4
		ns, err := h.Namespace(ctx, "faults")
		Expect(err).NotTo(HaveOccurred())
		f := &installSet{ns: ns}
		files := map[string]string{}
		for i := range n {
			files[fmt.Sprintf("stacks/s%d/stack.yaml", i)] = fmt.Sprintf("apiVersion: apps.ksctl.com/v1\nkind: "+
				"Stack\nmetadata: {name: s%d}\n", i) + harness.OneComponent
			files[fmt.Sprintf("stacks/s%d/main/a.yaml", i)] = fmt.Sprintf("apiVersion: v1\nkind: "+
				"ConfigMap\nmetadata: {name: c%d}\n", i)
		}
		Expect(h.PublishSource(ctx, ns, "src", "r1", artifacts.Files(files))).To(Succeed())
		for i := range n {
			in := harness.NewInstall(ns, fmt.Sprint("i", i))
			in.Labels = map[string]string{"fleet": ns}
			in.Spec.Stack = fmt.Sprint("s", i)
			Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
		}
		for _, life := range []struct {
			name   string
			writes int
		}{
			// The finalizer, the intent, the object and the outcome.
			{"first", 4 * n}, {"second", 0},
		} {
			By("the " + life.name + " start")
			p, t := newProxy(), &traffic{}
			p.Set(proxy.Rule{When: []cluster.RequestFilter{cluster.Write, notLease}, Do: t.count})
			process := startController(ctx, f, p, fmt.Sprint("--concurrent=", atOnce))
			Eventually(ctx, func(ctx context.Context) (int, error) {
				return reconciled(ctx, process)
			}, 2*soon, "100ms").Should(BeNumerically(">=", n))
			Eventually(ctx, func(ctx context.Context) (ready int, err error) {
				var list appsv1.KsctlInstallList
				err = h.ControlPlane.Client().List(ctx, &list, client.InNamespace(ns))
				for i := range list.Items {
					if harness.ReadyCondition(&list.Items[i]).Status == "True" {
						ready++
					}
				}
				return ready, err
			}, 2*soon, "1s").Should(Equal(n))
			metrics, err := process.Metrics(ctx)
			Expect(err).NotTo(HaveOccurred())
			scanner.Record(leakscan.Metrics, metrics)
			Expect(process.Stop()).To(Or(Succeed(), MatchError(ContainSubstring("signal"))))
			writes, most := t.totals()
			AddReportEntry(life.name+" start", fmt.Sprintf("%d writes, at most %d at once", writes, most),
				ReportEntryVisibilityAlways)
			Expect(writes).To(BeNumerically("~", life.writes, life.writes/50), "writes")
			Expect(most).To(BeNumerically("<=", atOnce), "concurrent writes")
		}
	})
})

// reconciled returns the number of reconciles of installs in a process.
func reconciled(ctx context.Context, p *harness.Process) (total int, err error) {
	text, err := p.Metrics(ctx)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), `controller_runtime_reconcile_total{controller="ksctlinstall"`) {
			n := 0.0
			_, _ = fmt.Sscan(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], &n)
			total += int(n)
		}
	}
	return total, err
}
