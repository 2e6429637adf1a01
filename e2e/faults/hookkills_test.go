package faults_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/faults/proxy"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/suite"
)

var _ = Describe("The hooks of a chart", suite.Safety, func() {
	It("each run once in a revision of its release if the controller is killed at any write", func(ctx SpecContext) {
		f := newInstallSet(ctx, map[string]int{})
		p := newProxy()
		runs := watchHooks(f.ns)
		total, revision, write, killed, lost := kills(), 0, 0, 0, false
		for killed < total {
			revision++
			write++
			publishHooks(ctx, f.ns, revision)
			moment := fmt.Sprintf("revision %d, killed at write %d", revision, write)
			if f.killAtWrite(ctx, p, write, lost) {
				killed++
			} else {
				write, lost = 0, !lost // an upgrade has no more writes
			}
			life := startController(ctx, f, nil)
			awaitRelease(ctx, f.ns, revision)
			life.Kill()
			Eventually(ctx, runs.count).WithTimeout(soon).Should(Equal(map[string]int{"before": revision,
				"quick": revision, "after": revision}), moment)
		}
		AddReportEntry("kills", killed, ReportEntryVisibilityAlways)
	}, SpecTimeout(time.Hour))
})

// publishHooks publishes a revision of a chart with hooks, and makes the install of it. Its first
// revision is an install, and the others are upgrades.
func publishHooks(ctx context.Context, ns string, revision int) {
	GinkgoHelper()
	hook := func(name, event, spec string) string {
		return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s, annotations: {helm.sh/hook: %q, "+
			"helm.sh/hook-delete-policy: hook-succeeded}}\nspec:\n  backoffLimit: 0\n%s  template:\n    spec: "+
			"{restartPolicy: Never, serviceAccountName: helper, containers: [{name: main, image: "+
			"example.com/main:1}]}\n",
			name, event, spec)
	}
	const both = "pre-install,pre-upgrade,post-install,post-upgrade"
	files := map[string]string{
		"chart/Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: hooked\nversion: 1.0.%d\n", revision),
		"chart/templates/account.yaml": fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: helper, "+
			"annotations: {helm.sh/hook: %q, helm.sh/hook-weight: \"-1\", helm.sh/hook-delete-policy: "+
			"\"before-hook-creation,hook-succeeded\"}}\n", both),
		"chart/templates/before.yaml": hook("before", "pre-install,pre-upgrade", ""),
		"chart/templates/quick.yaml":  hook("quick", "pre-install,pre-upgrade", "  ttlSecondsAfterFinished: 0\n"),
		"chart/templates/after.yaml":  hook("after", "post-install,post-upgrade", ""),
		"chart/templates/main.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: main}\n"+
			"data: {revision: \"%d\"}\n", revision),
	}
	const stack = "spec:\n  version: 1.0.0\n  components:\n  - {name: hooked, helm: {chart: ./chart}}\n"
	Expect(h.PublishSource(ctx, ns, "hooked", fmt.Sprint("r", revision), harness.SourceTree(stack, files))).
		To(Succeed())
	if revision > 1 {
		return
	}
	in := harness.NewInstall(ns, "hooked")
	in.Labels = map[string]string{"fleet": ns}
	in.Spec.SourceRef.Name = "hooked"
	in.Spec.RetryInterval = &metav1.Duration{Duration: time.Second}
	Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
}

// killAtWrite runs the controller, and kills it at a write: before the API server receives it if
// lost is set, otherwise before the response. It returns false if there are fewer writes.
func (f *installSet) killAtWrite(ctx context.Context, p *proxy.Proxy, write int, lost bool) bool {
	GinkgoHelper()
	t := &trigger{n: write, lost: lost, fired: make(chan struct{})}
	p.Watch(t.request)
	defer p.Watch(nil)
	life := startController(ctx, f, p)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-t.fired:
			life.Kill()
			return true
		case <-life.Done():
			Fail("the controller ended without a kill: " + tail(life.Log()))
		case <-tick.C:
			if t.quiet() > 3*time.Second {
				life.Kill()
				return false
			}
		}
	}
}

// hookRuns has the Jobs of a namespace that were ever seen: their uids by name.
type hookRuns struct {
	mu   sync.Mutex
	uids map[string]map[types.UID]bool
}

// watchHooks records the Jobs of a namespace, and lets their pods succeed, until the end of the
// spec: there are no nodes.
func watchHooks(ns string) *hookRuns {
	GinkgoHelper()
	c, err := client.NewWithWatch(h.ControlPlane.Config(), client.Options{})
	Expect(err).NotTo(HaveOccurred())
	r := &hookRuns{uids: map[string]map[types.UID]bool{}}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	observe := func(list client.ObjectList, do func(runtime.Object)) {
		running.Go(func() {
			for ctx.Err() == nil {
				w, err := c.Watch(ctx, list, client.InNamespace(ns))
				if err != nil {
					continue
				}
				for event := range w.ResultChan() {
					do(event.Object)
				}
			}
		})
	}
	observe(&batchv1.JobList{}, func(o runtime.Object) {
		if job, ok := o.(*batchv1.Job); ok {
			r.record(job)
		}
	})
	observe(&corev1.PodList{}, func(o runtime.Object) {
		if pod, ok := o.(*corev1.Pod); ok && pod.Status.Phase == corev1.PodPending {
			before := pod.DeepCopy()
			pod.Status.Phase = corev1.PodSucceeded
			_ = c.Status().Patch(ctx, pod, client.MergeFrom(before)) // the next event repeats it
		}
	})
	DeferCleanup(func() {
		stop()
		running.Wait()
	})
	return r
}

func (r *hookRuns) record(job *batchv1.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uids[job.Name] == nil {
		r.uids[job.Name] = map[types.UID]bool{}
	}
	r.uids[job.Name][job.UID] = true
}

// count returns the number of Jobs of each name.
func (r *hookRuns) count() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]int{}
	for name, uids := range r.uids {
		out[name] = len(uids)
	}
	return out
}

// awaitRelease waits until a revision of the chart is ready and its hooks are deleted.
func awaitRelease(ctx context.Context, ns string, revision int) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		var in appsv1.KsctlInstall
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKey{Namespace: ns, Name: "hooked"}, &in)
		c := harness.ReadyCondition(&in)
		if err != nil || c.Status != "True" || len(in.Status.Components) != 1 ||
			in.Status.Components[0].Release == nil {
			return fmt.Sprint(c.Reason, ": ", c.Message), err
		}
		r := in.Status.Components[0].Release
		return fmt.Sprintf("%s as %d, complete: %t", in.Status.LastAppliedRevision, r.Revision, r.Complete), nil
	}).WithTimeout(soon).WithPolling(50*time.Millisecond).
		Should(Equal(fmt.Sprintf("r%d as %d, complete: true", revision, revision)), "the release is complete")
}
