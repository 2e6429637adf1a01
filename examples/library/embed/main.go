// Command embed is a controller of somebody's own that brings the reconciler of
// KsctlInstall along: a namespace with the label example.com/stack gets that
// stack, without anybody writing an install.
//
//	go run ./embed --source fleet
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/setup"
)

func main() {
	o := options{}
	flag.StringVar(&o.namespace, "namespace", "library", "The namespace that this program runs in.")
	flag.StringVar(&o.storage, "storage", filepath.Join(os.TempDir(), "library"), "A folder for what is fetched.")
	flag.StringVar(&o.source, "source", "fleet", "The KsctlSource or GitRepository, in each namespace, that has the stacks.")
	flag.StringVar(&o.sourceKind, "source-kind", "GitRepository", "The kind of the source.")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	cfg, err := ctrl.GetConfig() // --kubeconfig, $KUBECONFIG, or that of the pod
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), cfg, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct{ namespace, storage, source, sourceKind string }

// run runs both reconcilers until ctx ends.
func run(ctx context.Context, cfg *rest.Config, o options) error {
	scheme := runtime.NewScheme()
	if err := setup.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		// The shipped controller has the others: it runs with --watch-label-selector=!example.com/made-by
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&appsv1.KsctlInstall{}: {Label: made.AsSelector()},
		}},
		// With more than one replica, one at a time:
		// LeaderElection: true, LeaderElectionID: "library", LeaderElectionNamespace: o.namespace,
	})
	if err != nil {
		return err
	}
	controllers, err := setup.New(ctx, mgr, setup.Options{
		OwnerID:     "library", // not "ksctl", which the shipped controller marks objects with
		Namespace:   o.namespace,
		StoragePath: o.storage,
		// Installs act as this account of their namespace, not as this program.
		DefaultServiceAccount: "deployer",
	})
	if err != nil {
		return err
	}
	if err := controllers.AddInstalls(ctx); err != nil {
		return err
	}
	// Without Flux: controllers.AddSources(ctx, setup.Sources{Addr: ":9090"})
	if err := addNamespaces(mgr, o); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
