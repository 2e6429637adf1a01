// Command worker-runtime runs the scripts of an account with workerd. It is the entry point of the
// image that scripts are added to.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/version"
	"github.com/ksctl/gitops/internal/workers/runtime"
	"github.com/ksctl/gitops/internal/workers/workerd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker-runtime:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := runtime.Options{StartTimeout: runtime.DefaultStartTimeout, Settle: runtime.DefaultSettle,
		MinBackoff: runtime.DefaultMinBackoff, MaxBackoff: runtime.DefaultMaxBackoff,
		Log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	var workers, workersFile string
	cmd := &cobra.Command{
		Use:           "worker-runtime",
		Short:         "Run the scripts of an account",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			content := []byte(workers)
			if workersFile != "" {
				var err error
				if content, err = os.ReadFile(workersFile); err != nil {
					return fmt.Errorf("reading the list of workers: %w", err)
				}
			}
			var err error
			if o.Workers, err = runtime.ParseWorkers(content); err != nil {
				return err
			}
			if o.Poll <= 0 || o.HealthInterval <= 0 || o.HealthTimeout <= 0 || o.HealthFailures <= 0 {
				return errors.New("--secret-interval, --workerd-health-interval, --workerd-health-timeout and " +
					"--workerd-health-failures must be positive")
			}
			return runtime.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&workers, "workers", "",
		`The workers, as JSON: [{"name", "port", "envPrefix", "compatibilityDate", "secret": true}].`)
	flags.StringVar(&workersFile, "workers-file", "", "A file with the workers, instead of --workers.")
	flags.StringVar(&o.Scripts, "scripts", workerd.ScriptsFolder, "The folder with a folder for each script.")
	flags.StringVar(&o.Secrets, "secrets", runtime.DefaultSecrets, "The folder with a mounted Secret for each worker.")
	flags.StringVar(&o.Dir, "dir", runtime.DefaultDir, "A writable folder for the configuration of workerd.")
	flags.StringVar(&o.Workerd, "workerd", "/workerd", "The path of workerd.")
	flags.StringSliceVar(&o.Networks, "allow-network", []string{"public"},
		"The networks that scripts may connect to: public, private, local, or a CIDR.")
	flags.StringVar(&o.HealthAddr, "health-addr", runtime.DefaultHealthAddr, "The address of /healthz and /readyz.")
	flags.DurationVar(&o.HealthInterval, "workerd-health-interval", runtime.DefaultHealthInterval,
		"The time between two requests that check whether workerd responds.")
	flags.DurationVar(&o.HealthTimeout, "workerd-health-timeout", runtime.DefaultHealthTimeout,
		"The timeout of such a request.")
	flags.IntVar(&o.HealthFailures, "workerd-health-failures", runtime.DefaultHealthFailures,
		"The number of such requests that fail in a row after which workerd is killed and started again.")
	flags.DurationVar(&o.Drain, "drain", runtime.DefaultDrain,
		"How long requests are served after SIGTERM, while the pod is removed from its Services.")
	flags.DurationVar(&o.Grace, "grace", runtime.DefaultGrace,
		"The time that workerd has after that, or after a change of a Secret, to respond to open requests.")
	flags.DurationVar(&o.Poll, "secret-interval", runtime.DefaultPoll,
		"The interval at which mounted Secrets are compared.")
	cmd.MarkFlagsOneRequired("workers", "workers-file")
	cmd.MarkFlagsMutuallyExclusive("workers", "workers-file")
	return cmd
}
