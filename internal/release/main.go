// Command release makes what a release consists of, and pushes it, step by step:
//
//	go run ./internal/release image --version 0.1.0 --push registry.example.com/ksctl/controller
//
// Every step can be run by hand, against any registry; what it makes follows from the
// commit alone. Each pushed thing is written by its digest to <out>/pushed.txt, to be signed.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	r := &release{}
	cmd := &cobra.Command{Use: "release", Short: "Make and push what a release consists of", SilenceUsage: true, SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.prepare(cmd.Context()); err != nil {
				return err
			}
			if push := cmd.Flags().Lookup("push"); push == nil || push.Value.String() == "" {
				return nil
			}
			return r.clean(cmd.Context())
		}}
	flags := cmd.PersistentFlags()
	flags.StringVar(&r.version, "version", "0.0.0-dev", "The version of the release, as semver, without a v.")
	flags.StringVar(&r.out, "out", "bin/release", "The folder that everything is written to.")
	cmd.AddCommand(imageCommand(r), chartCommand(r), manifestCommand(r), cliCommand(r), catalogueCommand(r))
	return cmd
}
