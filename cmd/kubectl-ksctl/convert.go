package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/chart"
	"github.com/ksctl/gitops/stacks/checkout"
	"github.com/ksctl/gitops/stacks/convert"
)

// convertOptions are the flags of convert.
type convertOptions struct {
	capabilities
	cluster       clusterFlags
	files         []string
	fromCluster   bool
	allNamespaces bool
	repository    string
	sources       []string
	secrets       []string
	dryRun        bool
}

func newConvertCommand() *cobra.Command {
	var o convertOptions
	cmd := &cobra.Command{
		Use:   "convert {-f FILE-OR-FOLDER | --from-cluster}",
		Short: "Convert Kustomizations and HelmReleases of Flux and Applications of Argo CD to stacks and installs",
		Long: `Convert Kustomizations and HelmReleases of Flux and Applications of Argo CD to stacks and installs in
the checkout of their repository. Before anything is written, the command renders both with the libraries of kustomize and
Helm, and compares them object by object: if they differ, it names the object and the field, and writes nothing.

It prints what was converted, what was not and what to do instead, and the commits of the move. Nothing is changed in the
cluster. ConfigMaps, Secrets and sources that objects refer to are read from the files, or from the cluster.`,
		Example: `  kubectl ksctl convert -f clusters
  kubectl ksctl convert -f clusters/prod -f values-secret.yaml --dry-run
  kubectl ksctl convert --from-cluster --all-namespaces --repository ~/src/fleet --source "GitRepository flux-system/fleet"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "file or folder with the objects; may be repeated")
	flags.BoolVar(&o.fromCluster, "from-cluster", false, "read the objects from the cluster")
	flags.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "read the objects of all namespaces of the cluster")
	flags.StringVar(&o.repository, "repository", ".", "root of the checkout of the repository that the objects "+
		"refer to")
	flags.StringArrayVar(&o.sources, "source", nil,
		"source that is this repository: \"KIND NAMESPACE/NAME\" in Flux, the repoURL in Argo CD; needed if the "+
			"objects "+
			"have several")
	flags.StringArrayVar(&o.secrets, "secret", nil, "content of a key of a Secret for a chart repository: "+
		"name/key=file")
	flags.BoolVar(&o.dryRun, "dry-run", false, "write nothing")
	o.cluster.addFlags(flags)
	flags.Lookup("namespace").Usage = "namespace of the objects in the cluster; that of the context when it is empty"
	o.addFlags(flags, "if unset, "+stacks.DefaultKubeVersion)
	cmd.MarkFlagsOneRequired("filename", "from-cluster")
	return cmd
}

func (o *convertOptions) run(cmd *cobra.Command) (err error) {
	objects, err := convert.ReadFiles(o.repository, o.files)
	if err != nil {
		return err
	}
	if o.fromCluster {
		more, err := o.readCluster(cmd.Context())
		if err != nil {
			return err
		}
		objects = append(objects, more...)
	}
	dir, err := os.MkdirTemp("", "kubectl-ksctl-charts-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fetch, release, err := o.chartFetcher(dir)
	if err != nil {
		return err
	}
	defer release()
	caps := o.build()
	caps.KubeVersion = cmp.Or(caps.KubeVersion, stacks.DefaultKubeVersion)
	result, err := convert.Convert(cmd.Context(), convert.Options{Root: o.repository, Objects: objects,
		Sources: o.sources, Capabilities: caps, FetchCharts: fetch})
	if err != nil {
		return err
	}
	if !o.dryRun {
		if err := result.Write(o.repository); err != nil {
			return err
		}
	}
	return printConverted(cmd.OutOrStdout(), result, o.dryRun)
}

// chartFetcher returns a function that fetches the charts of an install. release frees them.
func (o *convertOptions) chartFetcher(dir string) (
	fetch func(context.Context, *appsv1.KsctlInstall, *stacks.Request) error, release func(), err error) {
	given, err := parseSecrets(o.secrets)
	if err != nil {
		return nil, nil, err
	}
	fetcher, err := chart.NewFetcher(chart.Options{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	var releases []func()
	fetch = func(ctx context.Context, in *appsv1.KsctlInstall, req *stacks.Request) error {
		done, err := fetcher.FetchAll(ctx, req, func(repository string) (*chart.Access, error) {
			return chartAccess(&checkout.Install{KsctlInstall: *in}, repository, given)
		})
		if err == nil {
			releases = append(releases, done)
		}
		return err
	}
	return fetch, func() {
		for _, done := range releases {
			done()
		}
	}, nil
}

// printConverted prints what was converted, and what was not, and the steps of the move.
func printConverted(out io.Writer, r *convert.Result, dryRun bool) error {
	var b strings.Builder
	for _, c := range r.Converted {
		fmt.Fprintf(&b, "%s", c.Object)
		if c.File != "" {
			fmt.Fprintf(&b, " (%s)", c.File)
		}
		if c.Stack == "" {
			b.WriteString(": all of its objects are converted on their own\n")
			continue
		}
		fmt.Fprintf(&b, ": stack %s, install %s, %d equal objects\n", c.Stack, c.Install, c.Objects)
	}
	for _, kept := range r.Kept {
		fmt.Fprintln(&b, kept)
	}
	section := func(title string, problems []convert.Problem) {
		if len(problems) > 0 {
			fmt.Fprintf(&b, "\n%s:\n", title)
		}
		for _, p := range problems {
			fmt.Fprintln(&b, " ", p)
		}
	}
	section("Not converted", r.Refused)
	section("Converted without", r.Notes)
	verb := "Written"
	if dryRun {
		verb = "To be written"
	}
	if len(r.Files) > 0 {
		fmt.Fprintf(&b, "\n%s:\n", verb)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Files)) {
		fmt.Fprintln(&b, " ", name)
	}
	for i, step := range r.Steps() {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, step.Title)
		for _, line := range step.Lines {
			fmt.Fprintln(&b, "  ", line)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
