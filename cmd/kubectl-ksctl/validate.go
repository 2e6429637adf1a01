package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/checkout"
)

func newValidateCommand() *cobra.Command {
	var caps capabilities
	cmd := &cobra.Command{
		Use:   "validate [DIR]",
		Short: "Validate all stacks and installs in a checkout",
		Long: `Validate every stack.yaml in a checkout, and render every KsctlInstall whose stack is in the
checkout, like the controller. Each valid stack is printed with its version, description and maintainers, and each
problem with file and line. The exit code is 1 if there are any problems.`,
		Example: "  kubectl ksctl validate\n  kubectl ksctl validate ~/src/fleet --kube-version v1.33.1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			return validate(cmd, dir, &caps)
		},
	}
	caps.addFlags(cmd.Flags(), "if unset, the newest version that each stack supports")
	return cmd
}

func validate(cmd *cobra.Command, dir string, caps *capabilities) error {
	c, err := checkout.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	report := c.Validate(cmd.Context(), caps.build())
	var out strings.Builder
	for _, def := range report.Definitions {
		fmt.Fprintln(&out, describe(def))
	}
	for _, w := range report.Warnings {
		fmt.Fprintln(&out, "warning:", w)
	}
	for _, p := range report.Problems {
		fmt.Fprintln(&out, p)
	}
	fmt.Fprintln(&out, report)
	if _, err := io.WriteString(cmd.OutOrStdout(), out.String()); err != nil || len(report.Problems) == 0 {
		return err
	}
	return errReported
}

// describe describes a stack in one line.
func describe(def *stacks.Definition) string {
	out := fmt.Sprintf("stack %s %s", def.Metadata.Name, def.Spec.Version)
	if def.Spec.Description != "" {
		out += ": " + strings.Join(strings.Fields(def.Spec.Description), " ")
	}
	if len(def.Spec.Maintainers) > 0 {
		out += " (" + strings.Join(def.Spec.Maintainers, ", ") + ")"
	}
	return out
}
