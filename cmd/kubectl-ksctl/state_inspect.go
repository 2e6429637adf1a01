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
		Short: "Show the clusters in state files, and whether the secrets are encrypted",
		Long: `Show the clusters and the credentials in files that ksctl exported, and the JSON pointers of
secrets that are not encrypted. The values of secrets are not shown.`,
		Example: "  kubectl ksctl state inspect export.json\n" +
			"  kubectl ksctl state inspect states/*.json --age-key-file age.agekey",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				l, err := keys.read(cmd.Context(), name)
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

// print prints a state file without the values of its secrets.
func (l *stateFile) print(out io.Writer) error {
	if l.namesEncrypted {
		_, err := fmt.Fprintf(out, "%s: encrypted, including the names; set --age-key-file to show the content\n",
			l.name)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "%s: %s\n", l.name, l.kind())
	if len(l.file.Clusters) > 0 {
		_, _ = fmt.Fprintln(w, "CLUSTER\tDIALECT\tKUBERNETES\tMACHINES\tADDONS")
	}
	for _, c := range l.file.Clusters {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", c.ID, c.Dialect, orDash(c.KubernetesVersion()),
			orDash(formatMachines(c)), orDash(formatAddons(c)))
	}
	for _, c := range l.file.Credentials {
		_, _ = fmt.Fprintln(w, c)
	}
	for _, at := range l.plaintext {
		_, _ = fmt.Fprintf(w, "plaintext: %s\n", at)
	}
	return w.Flush()
}

// kind describes the format of a file and whether its secrets are encrypted.
func (l *stateFile) kind() string {
	format := map[state.Form]string{state.ExportForm: "export", state.DocumentForm: "cluster state",
		state.CredentialsForm: "cloud credentials"}[l.file.Form]
	switch {
	case l.encrypted && len(l.plaintext) == 0:
		return format + ", encrypted"
	case l.encrypted:
		return fmt.Sprintf("%s, encrypted except %s", format, plural(len(l.plaintext), "secret"))
	case len(l.plaintext) == 0:
		return format + ", no secrets"
	}
	return fmt.Sprintf("%s, %s", format, plural(len(l.plaintext), "plaintext secret"))
}

// sealedValue matches a value that SOPS encrypted.
var sealedValue = regexp.MustCompile(`ENC\[[^\]]*\]`)

// orDash returns s for a table cell: "-" if it is empty, and a note in place of encrypted values.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return sealedValue.ReplaceAllString(s, "(encrypted)")
}

func formatMachines(c *state.Cluster) string {
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

func formatAddons(c *state.Cluster) string {
	var out []string
	for _, a := range c.Addons {
		out = append(out, strings.TrimSpace(a.Name+" "+a.Version))
	}
	return strings.Join(out, ", ")
}

func newStateValidateCommand() *cobra.Command {
	var keys ageKeys
	var allowPlaintext bool
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check that state files can be imported",
		Long: `Check that files are valid states of ksctl, and that their secrets are encrypted. Problems are
printed with their JSON pointers. The exit code is 1 if there are any.`,
		Example: "  kubectl ksctl state validate states/*.json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			clusters, problems := 0, 0
			seen := seenEntries{}
			report := func(format string, values ...any) {
				problems++
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), format+"\n", values...)
			}
			for _, name := range args {
				l, err := keys.read(cmd.Context(), name)
				switch {
				case err != nil:
					report("%v", err)
				case l.namesEncrypted:
					report("%s: %v", name, errNoKey)
				default:
					clusters += len(l.file.Clusters)
					l.check(allowPlaintext, report)
					l.checkOthers(seen, report)
				}
			}
			if problems > 0 {
				return errReported
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s, %s: ok\n", plural(len(args), "file"),
				plural(clusters, "cluster"))
			return err
		},
	}
	keys.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&allowPlaintext, "allow-plaintext", false, "accept plaintext secrets, like spec.allowPlaintext")
	return cmd
}

// check reports the problems of a file. allowPlaintext accepts plaintext secrets.
func (l *stateFile) check(allowPlaintext bool, report func(format string, values ...any)) {
	for _, c := range l.file.Clusters {
		for _, problem := range c.Validate() {
			report("%s: %s: %v", l.name, c.ID, problem)
		}
	}
	if allowPlaintext {
		return
	}
	for _, at := range l.plaintext {
		report("%s: %s: the secret is in plaintext; run kubectl ksctl state encrypt", l.name, at)
	}
}

// seenEntries are the first states of clusters and the first credentials of clouds among several
// files, by what they are of.
type seenEntries map[string]seenEntry

type seenEntry struct {
	file string
	data []byte
}

// check reports an entry that differs from the first one.
func (s seenEntries) check(file, what, of string, data []byte, report func(format string, values ...any)) {
	switch first, found := s[of]; {
	case !found:
		s[of] = seenEntry{file, data}
	case state.Equal(first.data, data):
	case first.file == file:
		report("%s: %s: the file has different %s: remove all but one", file, of, what)
	default:
		report("%s: %s: %s has other %s: remove one of the two", file, of, first.file, what)
	}
}

// checkOthers reports what an import rejects because of the other states and credentials of the
// import, or because ksctl has them elsewhere.
func (l *stateFile) checkOthers(seen seenEntries, report func(format string, values ...any)) {
	for _, c := range l.file.Clusters {
		if c.External {
			report("%s: %s: exported from a MongoDB, which still contains the state: export it from another store",
				l.name, c.ID)
		}
		seen.check(l.name, "states", c.ID.String(), c.JSON(), report)
	}
	for _, c := range l.file.Credentials {
		seen.check(l.name, "credentials", "credentials of "+c.Cloud, c.JSON(), report)
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
