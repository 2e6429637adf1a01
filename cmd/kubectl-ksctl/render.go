package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/checkout"
)

// renderOptions are the flags of render.
type renderOptions struct {
	capabilities
	root            string
	files           []string
	path, stack     string
	name, namespace string
	target          string
	strict          bool
	set, override   []string
	valuesFrom      []string
	secrets         []string
	keys            ageKeys
	offline         bool
	components      []string
	revisions       map[string]int
	output          string
	// clusters are the KsctlClusters in the files.
	clusters []clusterv1.KsctlCluster
}

func newRenderCommand() *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "render {-f INSTALL | --stack NAME}",
		Short: "Print the objects that an install renders to",
		Long: `Print the objects that an install renders to, in the order in which they are applied. The install is
a KsctlInstall in a file, or is described by flags. The command reads only the checkout, the files given
in flags and, unless --offline is set, charts from chart repositories.

If the stack reads the variable cluster, one of the files must have the KsctlCluster of the install:
committed, or as kubectl get ksctlcluster NAME -o yaml prints it, with the facts in its status.`,
		Example: `  kubectl ksctl render -f clusters/prod/monitoring.yaml
  kubectl ksctl render -f clusters/prod/monitoring.yaml -f clusters/prod/cluster.yaml
  kubectl ksctl render --path stacks --stack monitoring --set zone=eu --override prometheus.values.retention=30d
  kubectl ksctl render -f install.yaml --values-from Secret/site/values.yaml=site.yaml --component prometheus`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.files, "filename", "f", nil, "file with the KsctlInstall, or with its KsctlCluster")
	flags.StringVar(&o.root, "root", ".", "root of the checkout that holds the stack")
	flags.StringVar(&o.path, "path", "", "folder below the root that holds stack.yaml or <stack>/stack.yaml")
	flags.StringVar(&o.stack, "stack", "", "name of the stack")
	flags.StringVar(&o.name, "name", "", "name of the install; if unset, the name of the stack")
	flags.StringVarP(&o.namespace, "namespace", "n", "",
		"namespace of the install; if unset, the namespace in the file, or default")
	flags.StringVar(&o.target, "target-namespace", "", "namespace for objects without a namespace")
	flags.BoolVar(&o.strict, "strict", false, "fail on keys that are in no schema")
	flags.StringArrayVar(&o.set, "set", nil,
		"parameter of the stack: key=value, with dots for nested keys and YAML for values")
	flags.StringArrayVar(&o.override, "override", nil, "override of a component: component.key=value")
	flags.StringArrayVar(&o.valuesFrom, "values-from", nil,
		"content of a valuesFrom or parametersFrom reference of the install: kind/name/key=file")
	flags.StringArrayVar(&o.secrets, "secret", nil,
		"content of a key of a Secret that spec.charts of the install references: name/key=file")
	o.keys.addFlag(flags)
	flags.BoolVar(&o.offline, "offline", false,
		"do not fetch charts; fail if the stack needs a chart from a repository")
	flags.StringSliceVar(&o.components, "component", nil, "print only these components")
	flags.StringToIntVar(&o.revisions, "release-revision", nil,
		"revision of the release of a chart component: COMPONENT=N; if unset, 1, an install")
	flags.StringVarP(&o.output, "output", "o", "yaml", "yaml, or json for the whole result")
	o.addFlags(flags, "if unset, "+stacks.DefaultKubeVersion)
	cmd.MarkFlagsOneRequired("filename", "stack")
	for _, flag := range []string{"path", "stack", "name", "target-namespace"} {
		cmd.MarkFlagsMutuallyExclusive("filename", flag)
	}
	return cmd
}

func (o *renderOptions) run(cmd *cobra.Command) error {
	if o.output != "yaml" && o.output != "json" {
		return fmt.Errorf("--output %s: yaml or json is expected", o.output)
	}
	install, err := o.install()
	if err != nil {
		return err
	}
	if install.FromCatalog() {
		var remove func()
		if o.root, remove, err = install.UnpackCatalogStack(); err != nil {
			return err
		}
		defer remove()
	}
	req, err := o.request(install)
	if err != nil {
		return err
	}
	result, err := o.renderFetching(cmd.Context(), install, req)
	if err != nil {
		return err
	}
	if err := o.filter(&result); err != nil {
		return err
	}
	for _, w := range result.Warnings {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(result.Generated)) {
		calls := slices.Sorted(maps.Keys(result.Generated[name].Calls))
		if result.Generated[name].Clock != nil {
			calls = append(calls, "now")
		}
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(),
			"note: component %q: placeholders stand for what the controller generates: %s\n", name,
			strings.Join(calls, ", ")); err != nil {
			return err
		}
	}
	if o.output == "json" {
		result.Trace, result.Generated = nil, nil // the inputs of the render, which only caches need
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(result)
	}
	return result.WriteYAML(cmd.OutOrStdout())
}

// install returns the install in the file, or the install that the flags describe.
func (o *renderOptions) install() (*checkout.Install, error) {
	if len(o.files) == 0 {
		install := &checkout.Install{}
		install.Name, install.Namespace = cmp.Or(o.name, o.stack), o.namespace
		install.Spec.Path, install.Spec.Stack, install.Spec.TargetNamespace = o.path, o.stack, o.target
		return install, nil
	}
	var install *checkout.Install
	for _, file := range o.files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := checkout.ReadInstall(file, data)
		if err != nil {
			return nil, err
		}
		if found != nil && install != nil {
			return nil, fmt.Errorf("%s: there is another KsctlInstall in %s; render one at a time", file, install.File)
		}
		install = cmp.Or(found, install)
		clusters, err := checkout.ReadClusters(file, data)
		if err != nil {
			return nil, err
		}
		o.clusters = append(o.clusters, clusters...)
	}
	if install == nil {
		return nil, fmt.Errorf("%s: there is no KsctlInstall in this file", strings.Join(o.files, ", "))
	}
	install.Namespace = cmp.Or(o.namespace, install.Namespace)
	return install, nil
}

// request returns the render request of an install, with the values, parameters and overrides of
// the flags.
func (o *renderOptions) request(install *checkout.Install) (stacks.Request, error) {
	install.Namespace = cmp.Or(install.Namespace, "default")
	caps := o.build()
	caps.KubeVersion = cmp.Or(caps.KubeVersion, stacks.DefaultKubeVersion)
	given, err := parseValuesFrom(o.valuesFrom)
	if err != nil {
		return stacks.Request{}, err
	}
	req, missing, err := install.RenderRequest(o.root, caps, func(kind, name string) map[string][]byte {
		var data map[string][]byte
		for ref, content := range given {
			if key, ok := strings.CutPrefix(ref, kind+"/"+name+"/"); ok {
				if data == nil {
					data = map[string][]byte{}
				}
				data[key] = content
			}
		}
		return data
	})
	if err != nil {
		return stacks.Request{}, err
	}
	var errs []error
	for _, ref := range missing {
		errs = append(errs, fmt.Errorf("the install takes values from %s: give them with --values-from %s=FILE",
			ref.Source, ref.Name))
	}
	for key := range given {
		if !readsContent(&install.Spec, key) {
			errs = append(errs, fmt.Errorf("--values-from %s: the install has no such valuesFrom or parametersFrom",
				key))
		}
	}
	req.Choices.Strict = req.Choices.Strict || o.strict
	errs = append(errs, setParameters(&req.Choices, o.set), setOverrides(&req.Choices, o.override))
	for component, revision := range o.revisions {
		if revision < 1 {
			errs = append(errs, fmt.Errorf("--release-revision %s=%d: a revision is at least 1", component, revision))
		}
		if req.Releases == nil {
			req.Releases = map[string]stacks.ReleaseRecord{}
		}
		req.Releases[component] = stacks.ReleaseRecord{Revision: revision, Complete: true}
	}
	return req, errors.Join(errs...)
}

// filter removes the components that are not in --component. It checks the names in flags.
func (o *renderOptions) filter(result *stacks.Result) error {
	for component := range o.revisions {
		if !slices.ContainsFunc(result.Components, func(c stacks.RenderedComponent) bool {
			return c.Name == component && c.Record.Revision > 0
		}) {
			return fmt.Errorf("--release-revision %s: the install renders no such chart component", component)
		}
	}
	for _, name := range o.components {
		if !slices.ContainsFunc(result.Components, func(c stacks.RenderedComponent) bool { return c.Name == name }) {
			return fmt.Errorf("--component %s: the install renders no such component", name)
		}
	}
	for i := range result.Components {
		result.Components[i].Record = stacks.ReleaseRecord{} // its digest has no key here
	}
	result.Components = slices.DeleteFunc(result.Components, func(c stacks.RenderedComponent) bool {
		return len(o.components) > 0 && !slices.Contains(o.components, c.Name)
	})
	return nil
}
