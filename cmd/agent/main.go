// Command agent scales the workers of clusters over gRPC. "agent serve" is the server. "agent
// provision kwok" and "agent provision ksctl" are two of the provisioner programs that the server
// starts to create and delete machines.
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
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// newCommand returns the root command.
func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "agent",
		Short:         "Scale the workers of clusters that ksctl created",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String(),
	}
	root.AddCommand(newServeCommand(), newProvisionCommand())
	return root
}
