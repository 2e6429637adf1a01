package checkout

import (
	"fmt"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
)

const (
	installKind  = "KsctlInstall"
	installGroup = "apps.ksctl.com"
)

// Install is a KsctlInstall and where it stands.
type Install struct {
	appsv1.KsctlInstall
	// File below the root, and Line.
	File string
	Line int

	lines document.Lines
}

// Identity of the install.
func (i *Install) Identity() stacks.Identity {
	return stacks.Identity{Namespace: i.Namespace, Name: i.Name}
}

// OfCatalog is true for an install of a stack that the controller ships.
func (i *Install) OfCatalog() bool { return i.Spec.SourceRef.Kind == appsv1.CatalogKind }

// Unpack writes the stack of an install of the catalogue into a folder that the
// caller removes. The error is a *catalog.Error if the stack is not shipped.
func (i *Install) Unpack() (root string, remove func(), err error) {
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

// decodeInstall reads an install strictly: unknown fields are errors.
func decodeInstall(file string, node *yaml.Node) (*Install, stacks.Errors) {
	out := &Install{File: file, Line: node.Line}
	lines, problems := document.Decode(file, node, &out.KsctlInstall)
	out.lines = lines
	var errs stacks.Errors
	for _, p := range problems {
		errs = append(errs, &stacks.Error{File: file, Line: p.Line, Field: p.Path, Message: p.Message, Suggestion: p.Suggestion})
	}
	last, value := "spec.sourceRef.name", out.Spec.SourceRef.Name
	if out.OfCatalog() {
		last, value = "spec.stackVersion", out.Spec.StackVersion
	}
	required := map[string]string{"metadata.name": out.Name, "spec.stack": out.Spec.Stack, "spec.sourceRef.kind": out.Spec.SourceRef.Kind, last: value}
	for _, field := range []string{"metadata.name", "spec.stack", "spec.sourceRef.kind", last} {
		if required[field] == "" {
			errs = append(errs, &stacks.Error{File: file, Line: lines.Of(field), Field: field, Message: fmt.Sprintf("field %q is required", field)})
		}
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return out, nil
}

// ReadInstall reads the one install in a file, which may hold other objects.
func ReadInstall(file string, data []byte) (*Install, error) {
	docs, err := document.Parse(file, data)
	if err != nil {
		return nil, err
	}
	var found *Install
	for _, doc := range docs {
		if doc.Root.Kind != yaml.MappingNode || scalar(doc.Root, "kind") != installKind {
			continue
		}
		if found != nil {
			return nil, &stacks.Error{File: file, Line: doc.Line, Message: "there is more than one KsctlInstall in this file"}
		}
		install, errs := decodeInstall(file, doc.Root)
		if len(errs) > 0 {
			return nil, errs.Err()
		}
		found = install
	}
	if found == nil {
		return nil, &stacks.Error{File: file, Message: "there is no KsctlInstall in this file"}
	}
	return found, nil
}

// Request is the render that the controller would do for an install. values finds the
// content of a values reference, and says whether it is there.
func (i *Install) Request(root string, caps stacks.Capabilities, values func(appsv1.ValuesReference) ([]byte, bool)) (req stacks.Request, missing []appsv1.ValuesReference, err error) {
	var inputs []stacks.ValuesInput
	for _, ref := range i.Spec.ValuesFrom {
		data, ok := values(ref)
		if !ok {
			if !ref.Optional {
				missing = append(missing, ref)
			}
			continue
		}
		inputs = append(inputs, stacks.ValuesInput{Component: ref.Component, Source: stacks.ValuesSource(ref), Data: data, Public: ref.Kind != "Secret"})
	}
	choices, err := stacks.ChoicesFromInstall(&i.KsctlInstall, inputs)
	return stacks.Request{
		Root: root, Path: i.Spec.Path, Stack: i.Spec.Stack, Install: i.Identity(), Choices: choices, Capabilities: caps,
	}, missing, err
}

// place puts the file and line of an install into errors that have none: they are about what it chose.
func (i *Install) place(errs stacks.Errors) stacks.Errors {
	out := slices.Clone(errs)
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

// lineOf finds the line of a choice.
func (i *Install) lineOf(e *stacks.Error) int {
	for n := range i.Spec.Components {
		if i.Spec.Components[n].Name == e.Component {
			return i.lines.Of(fmt.Sprintf("spec.components[%d].%s", n, e.Field))
		}
	}
	return i.lines.Of(e.Field)
}

// values looks for a values reference among the ConfigMaps of the checkout.
func (c *Checkout) values(i *Install) func(appsv1.ValuesReference) ([]byte, bool) {
	return func(ref appsv1.ValuesReference) ([]byte, bool) {
		if ref.Kind != "ConfigMap" {
			return nil, false
		}
		for _, namespace := range []string{i.Namespace, ""} {
			if text, ok := c.configMaps[namespace+"/"+ref.Name][stacks.ValuesKey(ref)].(string); ok {
				return []byte(text), true
			}
		}
		return nil, false
	}
}

// holds says whether the path of an install is a folder of this checkout.
func (c *Checkout) holds(i *Install) bool {
	dir, err := source.Clean(".", i.Spec.Path)
	return err == nil && c.tree.IsDir(dir)
}
