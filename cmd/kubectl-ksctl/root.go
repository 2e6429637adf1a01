package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/version"
)

// newCommand returns the root command, which prints to out and errOut.
func newCommand(out, errOut io.Writer) *cobra.Command {
	name := "kubectl-ksctl"
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") {
		name = "kubectl ksctl"
	}
	root := &cobra.Command{
		Use: "kubectl-ksctl",
		Short: "Validate and render stacks, convert objects of Flux and Argo CD to them, inspect and encrypt cluster " +
			"states, generate clients of kinds, and show and test what is installed",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: name},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetErr(errOut)
	root.AddCommand(newValidateCommand(), newRenderCommand(), newStateCommand(), newStatusCommand(), newTestCommand(),
		newConvertCommand(), newKindCommand(), newVersionCommand())
	return root
}

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.String())
			return err
		},
	}
}
