package kustomize

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/kustomize/kyaml/yaml/merge2"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// Release is the release of a chart that a kustomization renders.
type Release struct {
	// Chart is the folder of the chart below the root of the source.
	Chart string
	Name  string
	// Namespace is empty if neither the kustomization nor an overlay sets one.
	Namespace   string
	Values      map[string]any
	IncludeCRDs bool
	// KubeVersion replaces that of the target if it is not empty. APIVersions are added to those
	// of the target.
	KubeVersion string
	APIVersions []string
	// File and Line are where the kustomization has the release.
	File string
	Line int
}

// RenderChart renders a release without its hooks.
type RenderChart func(Release) ([]*manifest.Object, error)

// chartFolder follows the path of a kustomization in the path of the folder with its rendered
// charts. No file has such a path, or it cannot be read.
const chartFolder = "#helmCharts"

// generatedFiles are the files that replace those of the source in a build: kustomizations that
// have a Component with rendered charts in place of the charts.
type generatedFiles struct {
	files   map[string][]byte
	folders map[string]bool
}

// renderCharts renders the charts of kustomizations.
func renderCharts(tree *source.Tree, sets []*chartSet, render RenderChart) (generatedFiles, error) {
	out := generatedFiles{files: map[string][]byte{}, folders: map[string]bool{}}
	var errs problem.Errors
	releases := make([][]Release, len(sets))
	// Read all files first, so that all encrypted ones are known.
	for i, set := range sets {
		for _, c := range set.charts {
			vals, err := c.values(tree)
			errs.Add(err)
			releases[i] = append(releases[i], c.release(set, vals))
		}
	}
	if len(errs) > 0 {
		return out, errs.Err()
	}
	for i, set := range sets {
		folder, resources := set.file+chartFolder, []string{}
		for j, r := range releases[i] {
			objects, err := render(r)
			errs.Add(err)
			text, err := encode(objects)
			errs.Add(err)
			if int64(len(text)) > source.MaxFile {
				errs.Add(problem.Errorf(r.File, r.Line, "the chart %s renders more than %d bytes", r.Chart,
					source.MaxFile))
			}
			if len(text) > 0 {
				name := fmt.Sprintf("%d-%s.yaml", j, path.Base(r.Chart))
				out.files[path.Join(folder, name)] = text
				resources = append(resources, name)
			}
		}
		errs.Add(out.replace(tree, set, folder, resources))
	}
	return out, errs.Err()
}

// replace adds a kustomization with a Component in place of its charts. kustomize builds Components
// right after generators, such as that of charts.
func (g *generatedFiles) replace(tree *source.Tree, set *chartSet, folder string, resources []string) error {
	fields, components, err := g.read(tree, set.file)
	if err != nil {
		return err
	}
	for _, name := range chartFieldNames {
		delete(fields, name)
	}
	if len(resources) > 0 {
		name, err := json.Marshal(path.Base(folder))
		if err != nil {
			return err
		}
		components = slices.Insert(components, 0, json.RawMessage(name))
		component := types.Kustomization{Resources: resources,
			TypeMeta: types.TypeMeta{APIVersion: types.ComponentVersion, Kind: types.ComponentKind}}
		g.folders[folder] = true
		file := path.Join(folder, konfig.DefaultKustomizationFileName())
		if g.files[file], err = json.Marshal(component); err != nil {
			return err
		}
	}
	return g.write(set.file, fields, components)
}

// addComponents adds Components to a kustomization, after its own.
func (g *generatedFiles) addComponents(tree *source.Tree, file string, paths []string) error {
	fields, components, err := g.read(tree, file)
	if err != nil {
		return err
	}
	for _, name := range paths {
		raw, err := json.Marshal(name)
		if err != nil {
			return err
		}
		components = append(components, raw)
	}
	return g.write(file, fields, components)
}

// read reads a kustomization, and the entries of its field components.
func (g *generatedFiles) read(tree *source.Tree, file string) (map[string]json.RawMessage, []json.RawMessage, error) {
	data, generated := g.files[file]
	var err error
	if !generated {
		if data, err = tree.Read(file, source.MaxFile); err != nil {
			return nil, nil, err
		}
	}
	fields := map[string]json.RawMessage{}
	if data, err = yaml.YAMLToJSON(data); err == nil { // as kustomize does
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		return nil, nil, problem.Errorf(file, 0, "the kustomization cannot be read: %w", err)
	}
	components := []json.RawMessage{}
	if fields["components"] != nil {
		if err := json.Unmarshal(fields["components"], &components); err != nil {
			return nil, nil, problem.Errorf(file, 0, "field %q must be a list", "components")
		}
	}
	return fields, components, nil
}

// write replaces a kustomization.
func (g *generatedFiles) write(file string, fields map[string]json.RawMessage, components []json.RawMessage) error {
	var err error
	if fields["components"], err = json.Marshal(components); err != nil {
		return err
	}
	g.files[file], err = json.Marshal(fields)
	return err
}

// encode encodes objects for kustomize, which must know that they are of a chart.
func encode(objects []*manifest.Object) ([]byte, error) {
	var out []byte
	for _, o := range objects {
		meta, _ := o.Value["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		if annotations == nil {
			annotations = map[string]any{}
			meta["annotations"] = annotations
		}
		annotations[konfig.HelmGeneratedAnnotation] = "true"
		text, err := manifest.Canonical(o.Value)
		if err != nil {
			return nil, problem.Errorf(o.File, o.Line, "%s cannot be encoded as JSON", o)
		}
		out = append(append(append(out, "---\n"...), text...), '\n')
	}
	return out, nil
}

func (c *chart) release(set *chartSet, vals map[string]any) Release {
	out := Release{Chart: c.dir, Name: c.ReleaseName, Namespace: c.Namespace, Values: vals,
		IncludeCRDs: c.IncludeCRDs, KubeVersion: c.KubeVersion, APIVersions: c.ApiVersions,
		File: set.file, Line: c.line}
	if out.Namespace == "" {
		out.Namespace = set.namespace
	}
	return out
}

// values returns the values of a release, merged as by kustomize.
func (c *chart) values(tree *source.Tree) (out map[string]any, err error) {
	switch {
	case len(c.ValuesInline) == 0:
		if c.hasValuesFile(tree) {
			out, err = values.Read(tree, c.valuesFile)
		}
	case c.ValuesMerge == replaceValues:
		out = c.ValuesInline
	default:
		out, err = c.mergeInline(tree)
	}
	for _, file := range c.additionalFiles {
		if err != nil {
			return nil, err
		}
		var more map[string]any
		more, err = values.Read(tree, file)
		out = values.Merge(out, more)
	}
	return out, err
}

// hasValuesFile returns false for a chart without default values.
func (c *chart) hasValuesFile(tree *source.Tree) bool {
	return c.ValuesFile != "" || tree.IsFile(c.valuesFile)
}

// mergeInline merges valuesFile and valuesInline.
func (c *chart) mergeInline(tree *source.Tree) (map[string]any, error) {
	if !c.hasValuesFile(tree) {
		return c.ValuesInline, nil
	}
	data, err := fileSystem{tree: tree}.ReadFile(c.valuesFile)
	if err != nil {
		return nil, err
	}
	root, err := values.ParseNode(c.valuesFile, data)
	if err != nil || root == nil {
		return c.ValuesInline, err
	}
	failed := func(err error) error {
		return problem.Errorf(c.valuesFile, 0, "the values cannot be merged with valuesInline: %s", oneLine(err))
	}
	inline, err := kyaml.FromMap(c.ValuesInline)
	if err != nil {
		return nil, failed(err)
	}
	over, base := inline, kyaml.NewRNode(root)
	if c.ValuesMerge == mergeValues {
		over, base = base, over
	}
	defer lockKubernetesSchema()()
	merged, err := merge2.Merge(over, base, kyaml.MergeOptions{})
	if err != nil {
		return nil, failed(err)
	}
	if merged.IsNilOrEmpty() {
		return nil, nil
	}
	return document.Kustomize.Map(c.valuesFile, merged.YNode())
}
