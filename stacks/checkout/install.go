package checkout

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
)

const (
	installKind  = "KsctlInstall"
	installGroup = "apps.ksctl.com"
	clusterKind  = "KsctlCluster"
)

// Install is a KsctlInstall and its place in the working copy.
type Install struct {
	appsv1.KsctlInstall
	// File below the root, and the Line in it.
	File string
	Line int

	lines document.Lines
}

// Identity returns the namespace and name of the install.
func (i *Install) Identity() stacks.Identity {
	return stacks.Identity{Namespace: i.Namespace, Name: i.Name}
}

// FromCatalog returns true for an install of a stack that ships with the controller.
func (i *Install) FromCatalog() bool { return i.Spec.SourceRef.Kind == appsv1.CatalogKind }

// UnpackCatalogStack writes the catalog stack of an install into the temporary folder root. The
// caller calls remove to delete it. The error is a *catalog.Error if the catalog does not have the
// stack.
func (i *Install) UnpackCatalogStack() (root string, remove func(), err error) {
	files, err := catalog.FS(i.Spec.Stack, i.Spec.StackVersion)
	if err != nil {
		return "", nil, err
	}
	if root, err = os.MkdirTemp("", "ksctl-catalog-"); err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(root) }
	if err := os.CopyFS(root, files); err != nil {
		remove()
		return "", nil, err
	}
	return root, remove, nil
}

// decodeInstall decodes an install strictly: unknown fields are errors.
func decodeInstall(file string, node *yaml.Node) (*Install, stacks.Errors) {
	out := &Install{File: file, Line: node.Line}
	lines, errs := document.Decode(file, node, &out.KsctlInstall)
	out.lines = lines
	last, value := "spec.sourceRef.name", out.Spec.SourceRef.Name
	if out.FromCatalog() {
		last, value = "spec.stackVersion", out.Spec.StackVersion
	}
	for _, required := range [][2]string{{"metadata.name", out.Name}, {"spec.stack", out.Spec.Stack},
		{"spec.sourceRef.kind", out.Spec.SourceRef.Kind}, {last, value}} {
		if field := required[0]; required[1] == "" {
			errs = append(errs,
				&stacks.Error{File: file, Line: lines.Of(field), Field: field,
					Message: fmt.Sprintf("field %q is required", field)})
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return out, nil
}

// ReadInstall reads the only KsctlInstall in a file; nil if there is none. The file may contain
// objects of other kinds.
func ReadInstall(file string, data []byte) (*Install, error) {
	docs, err := document.Parse(file, data)
	if err != nil {
		return nil, err
	}
	var found *Install
	for _, doc := range docs {
		if doc.Root.Kind != yaml.MappingNode || scalarValue(doc.Root, "kind") != installKind {
			continue
		}
		if found != nil {
			return nil, problem.Errorf(file, doc.Line, "there is more than one KsctlInstall in this file")
		}
		install, errs := decodeInstall(file, doc.Root)
		if len(errs) > 0 {
			return nil, errs.Err()
		}
		found = install
	}
	return found, nil
}

// ReadClusters reads the KsctlClusters in a file. The file may contain objects of other kinds.
func ReadClusters(file string, data []byte) ([]clusterv1.KsctlCluster, error) {
	docs, err := document.Parse(file, data)
	if err != nil {
		return nil, err
	}
	var out []clusterv1.KsctlCluster
	for _, doc := range docs {
		if doc.Root.Kind != yaml.MappingNode || scalarValue(doc.Root, "kind") != clusterKind {
			continue
		}
		var c clusterv1.KsctlCluster
		if _, errs := document.Decode(file, doc.Root, &c); len(errs) > 0 {
			return nil, errs.Err()
		}
		out = append(out, c)
	}
	return out, nil
}

// InstallsOn reports whether a KsctlCluster is one that the install names or selects.
func (i *Install) InstallsOn(c *clusterv1.KsctlCluster) bool {
	namespace := cmp.Or(c.Namespace, i.Namespace)
	if ref := i.Spec.ClusterRef; ref != nil {
		return c.Name == ref.Name && namespace == cmp.Or(ref.Namespace, i.Namespace)
	}
	if i.Spec.ClusterSelector == nil || namespace != i.Namespace {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(&i.Spec.ClusterSelector.LabelSelector)
	return err == nil && selector.Matches(labels.Set(c.Labels))
}

// Missing is a reference of an install to a ConfigMap or Secret whose content is not known.
type Missing struct {
	// Field of the install, such as spec.valuesFrom.
	Field string
	// Source describes the content for messages, and Name is its kind/name/key.
	Source, Name string
}

// RenderRequest returns the render request that the controller would use for an install. lookup
// returns the data of a ConfigMap or Secret, and nil if it does not exist. missing are the
// references to what does not exist and is not optional.
func (i *Install) RenderRequest(root string, caps stacks.Capabilities,
	lookup func(kind, name string) map[string][]byte) (req stacks.Request, missing []Missing, err error) {
	var inputs []stacks.ValuesInput
	for _, ref := range i.Spec.ValuesFrom {
		data, ok := lookup(ref.Kind, ref.Name)[stacks.ValuesKey(ref)]
		switch {
		case ok:
			inputs = append(inputs, stacks.ValuesInput{Component: ref.Component, Source: stacks.ValuesSource(ref),
				Data: data, Public: ref.Kind != "Secret", TargetPath: ref.TargetPath})
		case !ref.Optional:
			missing = append(missing, Missing{Field: "spec.valuesFrom", Source: stacks.ValuesSource(ref),
				Name: ref.Kind + "/" + cmp.Or(ref.Name, ref.Component) + "/" + stacks.ValuesKey(ref)})
		}
	}
	choices, err := stacks.ChoicesFromInstall(&i.KsctlInstall, inputs)
	for _, ref := range i.Spec.ParametersFrom {
		input, ok := stacks.NewParametersInput(ref, lookup(ref.Kind, ref.Name))
		switch {
		case ok:
			choices.ParametersFrom = append(choices.ParametersFrom, input)
		case !ref.Optional:
			missing = append(missing, Missing{Field: "spec.parametersFrom", Source: ref.Kind + " " + ref.Name,
				Name: ref.Kind + "/" + ref.Name + "/" + cmp.Or(ref.Key, "KEY")})
		}
	}
	out := stacks.Request{Root: root, Path: i.Spec.Path, Stack: i.Spec.Stack, Install: i.Identity(), Choices: choices,
		Capabilities: caps}
	if !stacks.RefusesGenerated(&i.KsctlInstall) {
		out.Generate.Policy = generated.Placeholders
	}
	return out, missing, err
}

// locate returns the errors in err, with the file and line of the install in errors without a file:
// such errors are about the choices of the install.
func (i *Install) locate(err error) stacks.Errors {
	out := slices.Clone(problem.Flatten(err))
	for n, e := range out {
		if e.File != "" {
			continue
		}
		own := *e
		own.File, own.Line = i.File, i.lineOf(e)
		out[n] = &own
	}
	return out
}

// lineOf returns the line of the choice that an error is about.
func (i *Install) lineOf(e *stacks.Error) int {
	for n := range i.Spec.Components {
		if i.Spec.Components[n].Name == e.Component {
			return i.lines.Of(fmt.Sprintf("spec.components[%d].%s", n, e.Field))
		}
	}
	return i.lines.Of(e.Field)
}

// configData returns a function that returns the data of the ConfigMaps of the checkout.
func (c *Checkout) configData(i *Install) func(kind, name string) map[string][]byte {
	return func(kind, name string) map[string][]byte {
		for _, namespace := range []string{i.Namespace, ""} {
			data, ok := c.configMaps[namespace+"/"+name]
			if kind != "ConfigMap" || !ok {
				continue
			}
			out := map[string][]byte{}
			for key, value := range data {
				if text, ok := value.(string); ok {
					out[key] = []byte(text)
				}
			}
			return out
		}
		return nil
	}
}

// contains returns true if the path of an install is a folder of this checkout.
func (c *Checkout) contains(i *Install) bool {
	dir, err := source.Clean(".", i.Spec.Path)
	return err == nil && c.tree.IsDir(dir)
}
