package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func newStatusCommand() *cobra.Command {
	var cluster clusterFlags
	cmd := &cobra.Command{
		Use:   "status INSTALL",
		Short: "Show the conditions, the waits and the components of an install, and the notes of its charts",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := cluster.client()
			if err != nil {
				return err
			}
			var in appsv1.KsctlInstall
			if err := c.Get(cmd.Context(), client.ObjectKey{Namespace: namespace, Name: args[0]}, &in); err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), &in)
		},
	}
	cluster.addFlags(cmd.Flags())
	return cmd
}

// printStatus prints the status of an install.
func printStatus(out io.Writer, in *appsv1.KsctlInstall) error {
	var b strings.Builder
	st := &in.Status
	fmt.Fprintf(&b, "KsctlInstall %s/%s: stack %s %s, revision %s\n", in.Namespace, in.Name, in.Spec.Stack,
		orNone(st.StackVersion), orNone(st.LastAppliedRevision))
	for _, c := range st.Conditions {
		fmt.Fprintf(&b, "%s is %s (%s): %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, w := range st.WaitsFor {
		fmt.Fprintf(&b, "waits for %s (%s)\n", w, w.Type)
	}
	if len(st.Components) > 0 {
		b.WriteString("\n")
		table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		_, _ = fmt.Fprintln(table, "COMPONENT\tVERSION\tREADY\tOBJECTS\tMESSAGE")
		for i := range st.Components {
			c := &st.Components[i]
			_, _ = fmt.Fprintf(table, "%s\t%s\t%t\t%d\t%s\n", c.Name, orNone(c.Version), c.Ready, c.Objects, c.Message)
		}
		_ = table.Flush() // a strings.Builder never fails
	}
	for i := range st.Components {
		if c := &st.Components[i]; c.Notes != "" {
			fmt.Fprintf(&b, "\nNotes of component %s:\n%s\n", c.Name, c.Notes)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func orNone(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
