// Command controller keeps what runs on a cluster equal to what repositories say.
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

// gcPercent is how much garbage there may be of what is alive, unless GOGC says
// otherwise. Most of that are caches, which hardly change: less than a third of the
// default saves memory all the time, and costs a tenth of the little CPU time there is.
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
		log.Error(err, "no configuration for the API server")
		os.Exit(1)
	}
	log.Info("starting", "version", version.String(), "owner-id", o.OwnerID)
	if err := manager.Run(ctrl.SetupSignalHandler(), cfg, &o); err != nil {
		log.Error(err, "stopped")
		os.Exit(1)
	}
}
