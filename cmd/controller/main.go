// Command controller is the GitOps controller: it keeps clusters in the state that repositories
// declare.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/fluxcd/pkg/runtime/logger"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/ksctl/gitops/internal/manager"
	"github.com/ksctl/gitops/internal/renderworker"
	"github.com/ksctl/gitops/internal/version"
)

// gcPercent is the garbage collection target, unless GOGC is set: the heap may grow by this
// percentage of the live data. Most of the live data are caches, which rarely change, so less than
// a third of the default saves memory permanently, and increases the low CPU usage by only a tenth.
const gcPercent = 30

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if len(os.Args) == 2 && os.Args[1] == renderworker.Command {
		os.Exit(renderworker.Main())
	}
	o := manager.Options{RenderProgram: []string{"", renderworker.Command}}
	flags := pflag.NewFlagSet("controller", pflag.ExitOnError)
	o.BindFlags(flags)
	printVersion := flags.Bool("version", false, "Print the version and exit.")
	_ = flags.Parse(os.Args[1:]) // exits on an error
	if *printVersion {
		fmt.Println(version.String())
		return
	}
	logger.SetLogger(logger.NewLogger(o.Log))
	log := ctrl.Log.WithName("setup")
	cfg, err := ctrl.GetConfig()
	if err != nil {
		log.Error(err, "loading the kubeconfig failed")
		os.Exit(1)
	}
	log.Info("starting", "version", version.String(), "owner-id", o.OwnerID)
	if err := manager.Run(ctrl.SetupSignalHandler(), cfg, &o); err != nil {
		log.Error(err, "the controller stopped")
		os.Exit(1)
	}
}
