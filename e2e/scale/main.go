// Command scale measures the controller with many installs on a real control plane: the time until
// all are Ready, and the controller's memory and CPU time.
//
//	go run ./e2e/scale -installs 1000
//	go run ./e2e/scale -installs 10000 -start
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

func main() {
	installs := flag.Int("installs", 1000, "number of KsctlInstalls with ten objects each")
	concurrent := flag.Int("concurrent", 4, "--concurrent of the controller")
	atStart := flag.Bool("start", false, "create small installs before the controller starts")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	do, o := run, cluster.Options{Nodes: 20}
	if *atStart {
		do, o = start, cluster.Options{Audit: true, Nodes: -1, NoScheduler: true}
	}
	err := runBenchmark(ctx, o, &benchmark{installs: *installs, concurrent: *concurrent}, do)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// runBenchmark runs a benchmark on a new control plane.
func runBenchmark(ctx context.Context, o cluster.Options, l *benchmark, do func(context.Context,
	*benchmark) error) (err error) {
	if l.h, err = harness.Start(ctx, o); err != nil {
		return err
	}
	defer func() {
		if e := l.h.Stop(); err == nil {
			err = e
		}
	}()
	if l.ns, err = l.h.Namespace(ctx, "scale"); err != nil {
		return err
	}
	return do(ctx, l)
}

func run(ctx context.Context, l *benchmark) error {
	if err := l.publish(ctx, "r1", largeChart("1")); err != nil {
		return err
	}
	if err := l.startProcess(ctx); err != nil {
		return err
	}
	defer l.process.stop()
	fmt.Printf("controller started: %s\n", l.process.memory())

	began := time.Now()
	if err := l.createInstalls(ctx, time.Hour); err != nil {
		return err
	}
	fmt.Printf("%d installs created in %s\n", l.installs, time.Since(began).Round(time.Millisecond))
	if err := l.await(ctx, "r1"); err != nil {
		return err
	}
	fmt.Printf("all Ready in %s: %s, %s CPU time\n", time.Since(began).Round(time.Millisecond), l.process.memory(),
		l.process.cpuTime())

	before := l.process.cpuTime()
	began = time.Now()
	if err := l.publish(ctx, "r2", largeChart("2")); err != nil {
		return err
	}
	if err := l.await(ctx, "r2"); err != nil {
		return err
	}
	fmt.Printf("one object of each changed, all Ready in %s: %s, %s CPU time\n",
		time.Since(began).Round(time.Millisecond), l.process.memory(), l.process.cpuTime()-before)
	return nil
}

func (l *benchmark) publish(ctx context.Context, revision string, tree fs.FS) error {
	return l.h.PublishSource(ctx, l.ns, "src", revision, tree)
}

func (l *benchmark) createInstalls(ctx context.Context, interval time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range l.installs {
		g.Go(func() error {
			in := harness.NewInstall(l.ns, fmt.Sprintf("i%04d", i))
			in.Spec.Interval = &metav1.Duration{Duration: interval}
			override := fmt.Appendf(nil, `{"values":{"name":%q}}`, in.Name)
			in.Spec.Components = []appsv1.ComponentChoice{{Name: "main",
				Override: &apiextensionsv1.JSON{Raw: override}}}
			return l.h.ControlPlane.Client().Create(ctx, in)
		})
	}
	return g.Wait()
}

// await waits until all installs are Ready at a revision.
func (l *benchmark) await(ctx context.Context, revision string) error {
	for last := time.Now(); ; {
		done, example, err := countReady(ctx, l.h.ControlPlane.Client(), l.ns, revision)
		if err != nil || done == l.installs {
			return err
		}
		if time.Since(last) > 10*time.Second {
			fmt.Printf("  %d of %d are ready; %.150s\n", done, l.installs, example)
			last = time.Now()
		}
		if err := wait(ctx, time.Second); err != nil {
			return err
		}
	}
}
