// Command embed is a custom controller that embeds the reconciler of KsctlInstall. It creates a
// KsctlInstall for each namespace with the label example.com/stack, which names the stack.
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
	flag.StringVar(&o.namespace, "namespace", "library", "The namespace in which this program runs.")
	flag.StringVar(&o.storage, "storage", filepath.Join(os.TempDir(), "library"), "The folder for fetched artifacts.")
	flag.StringVar(&o.source, "source", "fleet",
		"The name of the source of the stacks, which must exist in each namespace.")
	flag.StringVar(&o.sourceKind, "source-kind", "GitRepository",
		"The kind of the source, such as GitRepository or KsctlSource.")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	cfg, err := ctrl.GetConfig() // --kubeconfig, $KUBECONFIG, or the in-cluster configuration
	if err == nil {
		err = run(ctrl.SetupSignalHandler(), cfg, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct{ namespace, storage, source, sourceKind string }

// run runs both reconcilers until ctx is done.
func run(ctx context.Context, cfg *rest.Config, o options) error {
	scheme := runtime.NewScheme()
	if err := setup.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		// The shipped controller skips these installs: --watch-label-selector=!example.com/made-by
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&appsv1.KsctlInstall{}: {Label: installLabels.AsSelector()},
		}},
		// To run more than one replica:
		// LeaderElection: true, LeaderElectionID: "library", LeaderElectionNamespace: o.namespace,
	})
	if err != nil {
		return err
	}
	controllers, err := setup.New(ctx, mgr, setup.Options{
		OwnerID:     "library", // not "ksctl", the ID of the shipped controller
		Namespace:   o.namespace,
		StoragePath: o.storage,
		// Installs are applied as this service account of their namespace, not as this program.
		DefaultServiceAccount: "deployer",
	})
	if err != nil {
		return err
	}
	if err := controllers.AddInstalls(ctx); err != nil {
		return err
	}
	// Without Flux: controllers.AddSources(ctx, setup.SourceOptions{Addr: ":9090"})
	if err := addNamespaces(mgr, o); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
