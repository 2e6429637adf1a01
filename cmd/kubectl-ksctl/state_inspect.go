package main

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/stacks/state"
)

func newStateInspectCommand() *cobra.Command {
	var keys ageKeys
	cmd := &cobra.Command{
		Use:   "inspect FILE...",
		Short: "Show the clusters of a file, and where its secrets stand",
		Long: `Show the clusters and the credentials of files that ksctl exported, and JSON pointers of the
secrets in them that are readable. No value of a secret is shown.`,
		Example: "  kubectl ksctl state inspect export.json\n  kubectl ksctl state inspect states/*.json --age-key-file age.agekey",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				l, err := keys.look(cmd.Context(), name)
				if err != nil {
					return err
				}
				if err := l.print(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	keys.addFlag(cmd.Flags())
	return cmd
}

// print shows a file without its secrets.
func (l *looked) print(out io.Writer) error {
	if l.closed {
		_, err := fmt.Fprintf(out, "%s: encrypted, its names, too; --age-key-file shows what it holds\n", l.name)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "%s: %s\n", l.name, l.kind())
	if len(l.file.Clusters) > 0 {
		_, _ = fmt.Fprintln(w, "CLUSTER\tDIALECT\tKUBERNETES\tMACHINES\tADDONS")
	}
	for _, c := range l.file.Clusters {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.ID, c.Dialect, or(c.Kubernetes()), or(machines(c)), or(addons(c)))
	}
	for _, c := range l.file.Credentials {
		_, _ = fmt.Fprintln(w, c)
	}
	for _, at := range l.readable {
		_, _ = fmt.Fprintf(w, "readable: %s\n", at)
	}
	return w.Flush()
}

// kind says what a file is.
func (l *looked) kind() string {
	what := map[state.Form]string{state.ExportForm: "export", state.DocumentForm: "state of a cluster", state.CredentialsForm: "credentials of a cloud"}[l.file.Form]
	switch {
	case l.encrypted && len(l.readable) == 0:
		return what + ", encrypted"
	case l.encrypted:
		return fmt.Sprintf("%s, encrypted, but not all of it: readable are %s", what, plural(len(l.readable), "secret"))
	case len(l.readable) == 0:
		return what + ", without a secret"
	}
	return fmt.Sprintf("%s, with %s that can be read", what, plural(len(l.readable), "secret"))
}

// sealedValue is one in the form of SOPS.
var sealedValue = regexp.MustCompile(`ENC\[[^\]]*\]`)

func or(s string) string {
	if s == "" {
		return "-"
	}
	return sealedValue.ReplaceAllString(s, "(encrypted)")
}

func machines(c *state.Cluster) string {
	var out []string
	for _, p := range c.Pools {
		text := fmt.Sprintf("%d %s", p.Count, p.Role)
		if p.Size != "" {
			text += " " + p.Size
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func addons(c *state.Cluster) string {
	var out []string
	for _, a := range c.Addons {
		out = append(out, strings.TrimSpace(a.Name+" "+a.Version))
	}
	return strings.Join(out, ", ")
}

func newStateValidateCommand() *cobra.Command {
	var keys ageKeys
	var plain bool
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check that files can be imported",
		Long: `Check that files are states that ksctl could work with, and that their secrets are encrypted.
Problems are told with their JSON pointers; the exit code is 1 when there are any.`,
		Example: "  kubectl ksctl state validate states/*.json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			clusters, problems := 0, 0
			tell := func(format string, values ...any) {
				problems++
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), format+"\n", values...)
			}
			for _, name := range args {
				l, err := keys.look(cmd.Context(), name)
				switch {
				case err != nil:
					tell("%v", err)
				case l.closed:
					tell("%s: %v", name, errNoKey)
				default:
					clusters += len(l.file.Clusters)
					l.check(plain, tell)
				}
			}
			if problems > 0 {
				return errFailed
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s, %s: ok\n", plural(len(args), "file"), plural(clusters, "cluster"))
			return err
		},
	}
	keys.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&plain, "allow-plaintext", false, "take files in which secrets are readable, as spec.allowPlaintext does")
	return cmd
}

// check tells what is wrong with a file.
func (l *looked) check(plain bool, tell func(format string, values ...any)) {
	for _, c := range l.file.Clusters {
		for _, problem := range c.Check() {
			tell("%s: %s: %v", l.name, c.ID, problem)
		}
	}
	if plain {
		return
	}
	for _, at := range l.readable {
		tell("%s: %s: it is a secret, and readable: kubectl ksctl state encrypt", l.name, at)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
