package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// interval of the installs of a start.
const interval = 3 * time.Minute

// start measures a controller that finds all installs at its start: first when
// nothing is installed, then when everything is, and how far their next
// reconciles lie from each other. At the end an object leaves each of them.
func start(ctx context.Context, installs, concurrent int) (err error) {
	h, err := harness.Start(ctx, cluster.Options{Audit: true, Nodes: -1, NoScheduler: true})
	if err != nil {
		return err
	}
	defer func() {
		if e := h.Stop(); err == nil {
			err = e
		}
	}()
	ns, err := h.Namespace(ctx, "scale")
	if err != nil {
		return err
	}
	if err := h.Publish(ctx, ns, "src", "r1", small(2)); err != nil {
		return err
	}
	if err := create(ctx, h, ns, installs, interval); err != nil {
		return err
	}
	fmt.Printf("%d installs of two objects each are there\n", installs)
	l := &lives{h: h, ns: ns, installs: installs, concurrent: concurrent}
	if err := l.begin(ctx, "first start, nothing installed", "r1"); err != nil {
		return err
	}
	l.process.stop()
	if err := l.begin(ctx, "second start, everything installed", "r1"); err != nil {
		return err
	}
	defer func() { l.process.stop() }()
	if err := l.watchRound(ctx); err != nil {
		return err
	}
	return l.measure(ctx, "an object leaves each install", "r2", func() error { return h.Publish(ctx, ns, "src", "r2", small(1)) })
}

// lives are those of the controller, one after the other.
type lives struct {
	h                    *harness.Harness
	ns                   string
	installs, concurrent int
	process              process
}

// begin starts the controller and waits until it has nothing to do.
func (l *lives) begin(ctx context.Context, what, revision string) error {
	return l.measure(ctx, what, revision, func() (err error) {
		l.process, err = startProcess(ctx, l.h, l.concurrent)
		return err
	})
}

// measure says what it takes from something that is done until all installs are
// ready at a revision and the controller makes no request any more.
func (l *lives) measure(ctx context.Context, what, revision string, do func() error) error {
	mark, err := l.h.Plane.AuditMark(ctx)
	if err != nil {
		return err
	}
	began, before := time.Now(), l.process.processor()
	if err := do(); err != nil {
		return err
	}
	if l.process.processor() < before {
		before = 0 // another process
	}
	if err := l.idle(ctx, revision); err != nil {
		return err
	}
	all, err := l.h.Plane.AuditSince(ctx, mark)
	if err != nil {
		return err
	}
	all = all.Where(cluster.By(cluster.ServiceAccountUser(harness.SystemNamespace, harness.Account))).Without(cluster.Watch, cluster.Lease, cluster.Discovery)
	fmt.Printf("%s: idle after %s; %s; %s of processor time; %d requests: %s\n", what, (time.Since(began) - quiet).Round(time.Second),
		l.process.memory(), l.process.processor()-before, len(all), byVerb(all))
	return nil
}

const (
	// quiet is how long a controller that is idle writes nothing.
	quiet = 5 * time.Second
	// stuck is how long one may that is not done.
	stuck = 2 * time.Minute
)

// idle returns when all installs are ready at a revision and nothing is written.
func (l *lives) idle(ctx context.Context, revision string) error {
	count, since := -1, time.Now()
	for {
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		now, err := l.counted(ctx, "rest_client_requests_total", `method="P`, `method="DELETE"`)
		if err != nil {
			return err
		}
		if now != count {
			count, since = now, time.Now()
		}
		looked, err := l.reconciles(ctx) // a second start has nothing to write
		if err != nil {
			return err
		}
		if looked < l.installs || time.Since(since) < quiet {
			continue
		}
		done, example, err := inPages(ctx, l.h.Plane.Client(), l.ns, revision)
		if err != nil || done == l.installs {
			return err
		}
		if time.Since(since) > stuck {
			return fmt.Errorf("%d of %d are ready at %s, and nothing happens; %s", done, l.installs, revision, example)
		}
	}
}

// watchRound says how far the next reconciles of all installs lie from each other.
func (l *lives) watchRound(ctx context.Context) error {
	before, err := l.reconciles(ctx)
	if err != nil {
		return err
	}
	var seconds []int // reconciles in each second, from the first one on
	for began := time.Now(); time.Since(began) < 2*interval; {
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
		now, err := l.reconciles(ctx)
		if err != nil {
			return err
		}
		if n := now - before; n > 0 || len(seconds) > 0 {
			seconds = append(seconds, n)
		}
		before = now
		if done := sum(seconds); done >= l.installs {
			break
		}
	}
	if len(seconds) == 0 {
		return fmt.Errorf("nothing was reconciled within %s, twice the interval", 2*interval)
	}
	fmt.Printf("next reconciles, interval %s: %d in %d seconds, at most %d in one; %s\n", interval, sum(seconds), len(seconds), slices.Max(seconds), l.process.memory())
	return nil
}

// reconciles is how many of installs the process has done.
func (l *lives) reconciles(ctx context.Context) (int, error) {
	return l.counted(ctx, "controller_runtime_reconcile_total", `controller="ksctlinstall"`)
}

// counted sums a metric of the process up, as far as it has one of some labels.
func (l *lives) counted(ctx context.Context, metric string, labels ...string) (int, error) {
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

func sum(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}

// byVerb counts requests.
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
	for what, n := range counts {
		out = append(out, fmt.Sprintf("%d %s", n, what))
	}
	slices.SortFunc(out, func(a, b string) int {
		return counts[b[strings.IndexByte(b, ' ')+1:]] - counts[a[strings.IndexByte(a, ' ')+1:]]
	})
	return strings.Join(out, ", ")
}

// at counts the installs of a list that are ready at a revision, and says how another one stands.
func at(list *appsv1.KsctlInstallList, revision string) (done int, example string) {
	for i := range list.Items {
		c := harness.Ready(&list.Items[i])
		if c.Status == "True" && list.Items[i].Status.LastAppliedRevision == revision {
			done++
		} else {
			example = list.Items[i].Name + ": " + c.Message
		}
	}
	return done, example
}

// inPages lists all installs without asking the API server for all at once.
func inPages(ctx context.Context, c client.Client, ns, revision string) (done int, example string, err error) {
	var next string
	for {
		var list appsv1.KsctlInstallList
		if err := c.List(ctx, &list, client.InNamespace(ns), client.Limit(500), client.Continue(next)); err != nil {
			return 0, "", err
		}
		n, e := at(&list, revision)
		done += n
		if e != "" {
			example = e
		}
		if next = list.Continue; next == "" {
			return done, example, nil
		}
	}
}
