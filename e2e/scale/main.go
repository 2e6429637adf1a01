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
	do := run
	if *atStart {
		do = start
	}
	err := do(ctx, *installs, *concurrent)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, installs, concurrent int) (err error) {
	h, err := harness.Start(ctx, cluster.Options{Nodes: 20})
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
	if err := h.PublishSource(ctx, ns, "src", "r1", largeChart("1")); err != nil {
		return err
	}
	p, err := startProcess(ctx, h, concurrent)
	if err != nil {
		return err
	}
	defer p.stop()
	idle := p.memory()
	fmt.Printf("controller started: %s\n", idle)

	began := time.Now()
	if err := createInstalls(ctx, h, ns, installs, time.Hour); err != nil {
		return err
	}
	fmt.Printf("%d installs created in %s\n", installs, time.Since(began).Round(time.Millisecond))
	if err := await(ctx, h, ns, installs, "r1"); err != nil {
		return err
	}
	fmt.Printf("all Ready in %s: %s, %s CPU time\n", time.Since(began).Round(time.Millisecond), p.memory(), p.cpuTime())

	before := p.cpuTime()
	began = time.Now()
	if err := h.PublishSource(ctx, ns, "src", "r2", largeChart("2")); err != nil {
		return err
	}
	if err := await(ctx, h, ns, installs, "r2"); err != nil {
		return err
	}
	fmt.Printf("one object of each changed, all Ready in %s: %s, %s CPU time\n",
		time.Since(began).Round(time.Millisecond), p.memory(), p.cpuTime()-before)
	return nil
}

func createInstalls(ctx context.Context, h *harness.Harness, ns string, installs int, interval time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range installs {
		g.Go(func() error {
			in := harness.NewInstall(ns, fmt.Sprintf("i%04d", i))
			in.Spec.Interval = &metav1.Duration{Duration: interval}
			override := fmt.Appendf(nil, `{"values":{"name":%q}}`, in.Name)
			in.Spec.Components = []appsv1.ComponentChoice{{Name: "main", Override: &apiextensionsv1.JSON{Raw: override}}}
			return h.ControlPlane.Client().Create(ctx, in)
		})
	}
	return g.Wait()
}

// await waits until all installs are Ready at a revision.
func await(ctx context.Context, h *harness.Harness, ns string, installs int, revision string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := time.Now(); ; {
		done, example, err := countAllReady(ctx, h.ControlPlane.Client(), ns, revision)
		if err != nil {
			return err
		}
		if done == installs {
			return nil
		}
		if time.Since(last) > 10*time.Second {
			fmt.Printf("  %d of %d are ready; %.150s\n", done, installs, example)
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
