package convert

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/problem"
	"github.com/ksctl/gitops/stacks/sops"
)

// Object is an object that is converted, or that such an object refers to.
type Object struct {
	// File below the root of the repository, and Line in it. Empty for an object of a cluster.
	File string
	Line int
	// Value of the object, as JSON decodes it.
	Value map[string]any

	node *yaml.Node
	// encrypted is true for an object in a file that is encrypted with SOPS.
	encrypted bool
	// parent renders the object, and given are the objects in files or a cluster that it renders.
	parent *conversion
	given  []*Object
}

// inFile reports whether the object is that of its file, and not one that another object adds.
func (o *Object) inFile() bool { return o.parent == nil || o.parent.kept && len(o.given) > 0 }

// reference identifies an object of Flux or Argo CD.
type reference struct{ kind, namespace, name string }

// String returns the kind, namespace and name, for messages.
func (r reference) String() string {
	if r.namespace == "" {
		return r.kind + " " + r.name
	}
	return r.kind + " " + r.namespace + "/" + r.name
}

func (o *Object) ref() reference {
	meta, _ := o.Value["metadata"].(map[string]any)
	kind, _ := o.Value["kind"].(string)
	namespace, _ := meta["namespace"].(string)
	name, _ := meta["name"].(string)
	return reference{kind, namespace, name}
}

func (o *Object) group() string {
	version, _ := o.Value["apiVersion"].(string)
	group, _, slash := strings.Cut(version, "/")
	if !slash {
		return ""
	}
	return group
}

// Groups of the kinds that are converted, and of the sources that they refer to.
const (
	kustomizeGroup = "kustomize.toolkit.fluxcd.io"
	helmGroup      = "helm.toolkit.fluxcd.io"
	sourceGroup    = "source.toolkit.fluxcd.io"
	argoGroup      = "argoproj.io"
)

func (o *Object) is(group, kind string) bool { return o.group() == group && o.ref().kind == kind }

// decode decodes the object into a struct. It returns the fields of the spec that the struct lacks.
func (o *Object) decode(into any) (document.Lines, problem.Errors) {
	if o.node == nil {
		o.node = &yaml.Node{}
		if err := o.node.Encode(o.Value); err != nil {
			return nil, problem.Flatten(err)
		}
	}
	lines, errs := document.Decode(o.File, o.node, into)
	return lines, slices.DeleteFunc(errs, func(e *problem.Error) bool { return !strings.HasPrefix(e.Field, "spec") })
}

// ReadFiles reads the objects in files and folders below the root of a repository. It skips files
// that are no YAML, as long as they are templates.
func ReadFiles(root string, names []string) ([]Object, error) {
	var out []Object
	seen := map[string]bool{}
	for _, name := range names {
		err := filepath.WalkDir(name, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			hidden := strings.HasPrefix(entry.Name(), ".") && file != name
			if entry.IsDir() {
				if hidden || entry.Name() == "node_modules" {
					return fs.SkipDir
				}
				return nil
			}
			if hidden || !slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(file))) {
				return nil
			}
			rel, err := relativeTo(root, file)
			if err != nil || seen[rel] {
				return err
			}
			seen[rel] = true
			objects, err := readFile(file, rel)
			out = append(out, objects...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// relativeTo returns the path of a file below the root; that of a file elsewhere is kept.
func relativeTo(root, file string) (string, error) {
	absRoot, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	absFile, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(absRoot, absFile)
	if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return filepath.ToSlash(file), nil //nolint:nilerr // a file on another volume is elsewhere
	}
	return filepath.ToSlash(rel), nil
}

func readFile(file, name string) ([]Object, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	docs, err := document.Parse(name, data)
	if err != nil {
		if strings.Contains(string(data), "{{") {
			return nil, nil // a template of a chart
		}
		return nil, err
	}
	_, encrypted := sops.Detect(name, data)
	var out []Object
	for _, doc := range docs {
		value, err := document.Map(name, doc.Root)
		if err != nil || value["kind"] == nil {
			continue // no object: values of a chart, for example
		}
		items, isList := value["items"].([]any)
		if !isList || value["kind"] != "List" {
			out = append(out, Object{File: name, Line: doc.Line, Value: value, node: doc.Root, encrypted: encrypted})
			continue
		}
		for _, item := range items {
			if inner, ok := item.(map[string]any); ok && inner["kind"] != nil {
				out = append(out, Object{File: name, Line: doc.Line, Value: inner, encrypted: encrypted})
			}
		}
	}
	return out, nil
}

// pathInRepository cleans a path of a source. It is an error if the path is the root of the
// repository, because a stack in it would be part of itself.
func pathInRepository(name string) (string, error) {
	clean := path.Clean(strings.TrimPrefix(path.Clean("/"+name), "/"))
	if clean == "." || clean == "" {
		return "", fmt.Errorf("it is the root of the repository; move the files into a folder")
	}
	return clean, nil
}
