// Command agent has a cluster have as many workers as it is asked to, over gRPC, and is itself
// two of the programs that it has machines made by.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// newCommand is the program.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "agent",
		Short:         "Scale the workers of clusters that ksctl made",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
	}
	root.AddCommand(newServeCommand(), newProvisionCommand())
	return root
}
