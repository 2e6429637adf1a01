package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// interval is the reconcile interval of the installs.
const interval = 3 * time.Minute

// start measures a controller that starts with existing installs: first with nothing installed,
// then with everything installed, then the distribution of the next reconciles over time. Finally
// it removes one object from each install.
func start(ctx context.Context, l *benchmark) error {
	if err := l.publish(ctx, "r1", smallChart(2)); err != nil {
		return err
	}
	if err := l.createInstalls(ctx, interval); err != nil {
		return err
	}
	fmt.Printf("created %d installs with two objects each\n", l.installs)
	if err := l.startController(ctx, "first start, nothing installed", "r1"); err != nil {
		return err
	}
	l.process.stop()
	if err := l.startController(ctx, "second start, everything installed", "r1"); err != nil {
		return err
	}
	defer func() { l.process.stop() }()
	if err := l.measureReconcileRate(ctx); err != nil {
		return err
	}
	return l.measure(ctx, "removal of one object from each install", "r2", func() error {
		return l.publish(ctx, "r2", smallChart(1))
	})
}

// benchmark measures consecutive runs of the controller.
type benchmark struct {
	h                    *harness.Harness
	ns                   string
	installs, concurrent int
	process              process
}

// startController starts the controller and waits until it is idle.
func (l *benchmark) startController(ctx context.Context, what, revision string) error {
	return l.measure(ctx, what, revision, func() error { return l.startProcess(ctx) })
}

// measure calls do, waits until all installs are ready at a revision and the controller is idle,
// and prints the time, memory, CPU time and requests.
func (l *benchmark) measure(ctx context.Context, what, revision string, do func() error) error {
	mark, err := l.h.ControlPlane.AuditMark(ctx)
	if err != nil {
		return err
	}
	began, before := time.Now(), l.process.cpuTime()
	if err := do(); err != nil {
		return err
	}
	if l.process.cpuTime() < before {
		before = 0 // do has started a new process
	}
	if err := l.awaitIdle(ctx, revision); err != nil {
		return err
	}
	all, err := l.h.ControlPlane.AuditSince(ctx, mark)
	if err != nil {
		return err
	}
	all = all.Where(cluster.ByUser(cluster.ServiceAccountUser(harness.SystemNamespace, harness.ServiceAccount))).
		Without(cluster.Watch, cluster.Lease, cluster.Discovery)
	fmt.Printf("%s: idle after %s; %s; %s CPU time; %d requests: %s\n", what,
		(time.Since(began) - idleAfter).Round(time.Second),
		l.process.memory(), l.process.cpuTime()-before, len(all), byVerb(all))
	return nil
}

const (
	// idleAfter is the time without writes after which a controller counts as idle.
	idleAfter = 5 * time.Second
	// stalledAfter is the time without writes after which an incomplete run fails.
	stalledAfter = 2 * time.Minute
)

// awaitIdle waits until all installs are ready at a revision and the controller has not written for
// the time quiet.
func (l *benchmark) awaitIdle(ctx context.Context, revision string) error {
	count, since := -1, time.Now()
	for {
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		now, err := l.sumMetric(ctx, "rest_client_requests_total", `method="P`, `method="DELETE"`)
		if err != nil {
			return err
		}
		if now != count {
			count, since = now, time.Now()
		}
		reconciled, err := l.reconcileCount(ctx) // needed because the second start writes nothing
		if err != nil {
			return err
		}
		if reconciled < l.installs || time.Since(since) < idleAfter {
			continue
		}
		done, example, err := countReady(ctx, l.h.ControlPlane.Client(), l.ns, revision)
		if err != nil || done == l.installs {
			return err
		}
		if time.Since(since) > stalledAfter {
			return fmt.Errorf("%d of %d installs are ready at %s, and the controller has not written for %s; %s", done,
				l.installs, revision, stalledAfter, example)
		}
	}
}

// measureReconcileRate prints how the next reconciles of all installs are distributed over time.
func (l *benchmark) measureReconcileRate(ctx context.Context) error {
	before, err := l.reconcileCount(ctx)
	if err != nil {
		return err
	}
	var seconds []int // number of reconciles in each second, from the first reconcile on
	total := 0
	for began := time.Now(); time.Since(began) < 2*interval; {
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		now, err := l.reconcileCount(ctx)
		if err != nil {
			return err
		}
		if n := now - before; n > 0 || len(seconds) > 0 {
			seconds, total = append(seconds, n), total+n
		}
		before = now
		if total >= l.installs {
			break
		}
	}
	if len(seconds) == 0 {
		return fmt.Errorf("no install was reconciled within %s, twice the interval", 2*interval)
	}
	fmt.Printf("next reconciles, interval %s: %d in %d seconds, at most %d per second; %s\n", interval, total,
		len(seconds), slices.Max(seconds), l.process.memory())
	return nil
}

// reconcileCount returns the number of reconciles of installs in the current process.
func (l *benchmark) reconcileCount(ctx context.Context) (int, error) {
	return l.sumMetric(ctx, "controller_runtime_reconcile_total", `controller="ksctlinstall"`)
}

// sumMetric returns the sum of the metric's series that contain one of the labels.
func (l *benchmark) sumMetric(ctx context.Context, metric string, labels ...string) (int, error) {
	text, err := l.process.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for line := range strings.Lines(text) {
		has := func(label string) bool { return strings.Contains(line, label) }
		if strings.HasPrefix(line, metric+"{") && slices.ContainsFunc(labels, has) {
			var n float64
			_, _ = fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n)
			total += n
		}
	}
	return int(total), nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// byVerb returns the number of requests by verb and resource, as text, the most frequent first.
func byVerb(rs cluster.Requests) string {
	counts := map[string]int{}
	for _, r := range rs {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		counts[r.Verb+" "+resource]++
	}
	var out []string
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return counts[b] - counts[a] }) {
		out = append(out, fmt.Sprintf("%d %s", counts[key], key))
	}
	return strings.Join(out, ", ")
}

// countReady returns the number of installs that are ready at a revision, and the message of one
// that is not. It lists the installs in pages.
func countReady(ctx context.Context, c client.Client, ns, revision string) (done int, example string, err error) {
	var next string
	for {
		var list appsv1.KsctlInstallList
		if err := c.List(ctx, &list, client.InNamespace(ns), client.Limit(500), client.Continue(next)); err != nil {
			return 0, "", err
		}
		for i := range list.Items {
			in := &list.Items[i]
			if c := harness.ReadyCondition(in); c.Status == "True" && in.Status.LastAppliedRevision == revision {
				done++
			} else {
				example = in.Name + ": " + c.Message
			}
		}
		if next = list.Continue; next == "" {
			return done, example, nil
		}
	}
}
