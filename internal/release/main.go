// Command release builds and pushes the artifacts of a release. Each subcommand is one step:
//
//	go run ./internal/release image --version 0.1.0 --push registry.example.com/ksctl/controller
//
// Every step can be run by hand, against any registry. Builds are reproducible: the result depends
// on the commit and the version alone. The digest of each pushed artifact is appended to
// <out>/pushed.txt, the list of what to sign.
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
	cmd := &cobra.Command{Use: "release", Short: "Build and push the artifacts of a release", SilenceUsage: true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.prepare(cmd.Context()); err != nil {
				return err
			}
			if push := cmd.Flags().Lookup("push"); push == nil || push.Value.String() == "" {
				return nil
			}
			return r.requireCleanTree(cmd.Context())
		}}
	flags := cmd.PersistentFlags()
	flags.StringVar(&r.version, "version", "0.0.0-dev", "The semantic version of the release, without a v.")
	flags.StringVar(&r.out, "out", "bin/release", "The folder for the results.")
	cmd.AddCommand(imageCommand(r), chartCommand(r), manifestCommand(r), cliCommand(r), catalogCommand(r))
	return cmd
}
