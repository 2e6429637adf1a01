package manifests

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
)

// maxKustomizations bounds the kustomizations of one tree, counted each time that one is included.
const maxKustomizations = 10_000

// kustomizationFile has what a kustomization lists. Its paths are cleaned.
type kustomizationFile struct {
	dir, file       string
	namespace       string
	files, children []string
	// empty is true without any field that makes or changes objects. kustomize refuses to build it.
	empty bool
	// listsOnly is true if it lists local files and folders, and sets a namespace at most.
	listsOnly bool
}

// kustomizationIn returns the kustomization in a folder, or nil. One that cannot be parsed lists
// nothing: its build has the error.
func (t *Tree) kustomizationIn(dir string) *kustomizationFile {
	if k, ok := t.kustomizations[dir]; ok || len(t.kustomizations) > maxKustomizations {
		return k
	}
	t.kustomizations[dir] = nil
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := path.Join(dir, name)
		if info, err := fs.Stat(t.fsys, file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		t.kustomizations[dir] = t.parseKustomization(dir, file)
		break
	}
	return t.kustomizations[dir]
}

// listFields are the fields of a kustomization that list files and folders.
var listFields = []string{"resources", "bases", "components"}

func (t *Tree) parseKustomization(dir, file string) *kustomizationFile {
	k := &kustomizationFile{dir: dir, file: file}
	data, err := t.read(file)
	if err != nil {
		return k
	}
	segments, err := parseFile(data)
	if err != nil {
		return k
	}
	k.empty, k.listsOnly = true, true
	for _, s := range segments {
		if s.root == nil {
			continue
		}
		for i := 0; i < len(s.root.Content); i += 2 {
			switch s.root.Content[i].Value {
			case "apiVersion", "kind", "metadata":
			case "resources", "bases", "namespace":
				k.empty = false
			default:
				k.empty, k.listsOnly = false, false
			}
		}
		if scalar(child(s.root, "kind")) == "Component" || anchorLine(s.root) > 0 {
			k.listsOnly = false
		}
		k.namespace = scalar(child(s.root, "namespace"))
		for _, field := range listFields {
			k.addEntries(t.fsys, child(s.root, field))
		}
	}
	return k
}

func (k *kustomizationFile) addEntries(fsys fs.FS, list *yaml.Node) {
	if list == nil || list.Kind != yaml.SequenceNode {
		return
	}
	for _, item := range list.Content {
		name := path.Join(k.dir, scalar(item))
		var info fs.FileInfo
		err := fs.ErrInvalid
		if fs.ValidPath(name) {
			info, err = fs.Stat(fsys, name)
		}
		switch {
		case err != nil || scalar(item) == "":
			k.listsOnly = false // the build fails, or fetches it
		case info.IsDir():
			k.children = append(k.children, name)
		case info.Mode().IsRegular():
			k.files = append(k.files, name)
			k.listsOnly = k.listsOnly && !path.IsAbs(scalar(item)) && below(k.dir, name)
		}
	}
}

// listsOnly returns true if a kustomization and all that it includes list local files, and set a
// namespace at most: the objects are those of the documents, and need no build.
func (t *Tree) listsOnly(dir string) bool {
	only, known := t.listing[dir]
	if known {
		return only
	}
	t.listing[dir] = false // the result for a kustomization that includes itself
	k := t.kustomizationIn(dir)
	only = k != nil && k.listsOnly && !slices.ContainsFunc(k.children, func(c string) bool { return !t.listsOnly(c) })
	t.listing[dir] = only
	return only
}

// kindsWithNamespaces have fields that kustomize sets to the namespace of the kustomization, too.
var kindsWithNamespaces = []string{"RoleBinding", "ClusterRoleBinding", "MutatingWebhookConfiguration",
	"ValidatingWebhookConfiguration", "APIService", "CustomResourceDefinition"}

// isUnchanged returns true if a kustomization that only lists files makes the object as it is
// written.
func isUnchanged(value map[string]any, namespace string) bool {
	for annotation := range asMap(asMap(value["metadata"])["annotations"]) {
		if strings.Contains(annotation, "config.k") { // kustomize uses some of these
			return false
		}
	}
	return namespace == "" || !slices.Contains(kindsWithNamespaces, asString(value["kind"]))
}
