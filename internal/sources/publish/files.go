package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing/fstest"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// Component is what one component of a stack renders to.
type Component struct {
	Name string
	// Namespace that the component asks to be there; empty: none.
	Namespace string
	// Objects in the order in which they are applied. One without a namespace is
	// published without, whatever its manifest says.
	Objects []stacks.Object
}

// Names of what is in an artifact.
const (
	kustomizationFile = "kustomization.yaml"
	namespacesFile    = "namespaces.yaml"
	componentsFolder  = "components"
)

// SecretsError says that nothing is published because of Secrets.
type SecretsError struct {
	// Rendered are Secrets that the stack renders, Read those that its values come from.
	Rendered, Read []string
	// Decrypted is what it was rendered from that is encrypted where it comes from.
	Decrypted []string
}

// Error implements error.
func (e *SecretsError) Error() string {
	const why = "whoever can reach the controller's file server can read what is published, and "
	switch {
	case len(e.Read) > 0:
		return why + fmt.Sprintf("what spec.valuesFrom reads of Secrets (%s) may stand anywhere in it: read no Secret, or set spec.publish.secrets to Include if that is meant", some(e.Read))
	case len(e.Decrypted) > 0:
		return why + fmt.Sprintf("what was decrypted (%s) may stand anywhere in it: set spec.publish.secrets to Include if that is meant", some(e.Decrypted))
	}
	return why + fmt.Sprintf("the stack renders Secrets (%s): set spec.publish.secrets to Omit to leave them out, or to Include if that is meant", some(e.Rendered))
}

// ErrEmpty says that nothing is published because there is nothing: whoever takes it
// would remove everything.
var ErrEmpty = errors.New("the stack renders no objects that could be published: what was published stays; delete the KsctlInstall if nothing is meant")

// some are a few of the names, and how many more there are.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
}

// Files are what is published of components: a kustomization of one file for each
// of them, in their order. Jobs that wait for a removal are left out, which only we
// would start.
func Files(components []Component, secrets appsv1.PublishedSecrets) (fs.FS, error) {
	tree := fstest.MapFS{}
	add := func(name string, content []byte) { tree[name] = &fstest.MapFile{Data: content, Mode: 0o644} }
	var refused, resources []string
	switch b, err := namespaces(components); {
	case err != nil:
		return nil, err
	case len(b) > 0:
		add(namespacesFile, b)
		resources = append(resources, namespacesFile)
	}
	for _, c := range components {
		var b bytes.Buffer
		for i := range c.Objects {
			o := &c.Objects[i]
			switch {
			case o.Hook != nil && o.Hook.Phase == stacks.HookPreRemove:
				continue
			case isSecret(o) && secrets == appsv1.SecretsOmit:
				continue
			case isSecret(o) && secrets != appsv1.SecretsInclude:
				refused = append(refused, o.Namespace+"/"+o.Name)
				continue
			}
			text, err := document(o)
			if err != nil {
				return nil, fmt.Errorf("manifest of %s: %w", o.Ref, err)
			}
			b.WriteString("---\n")
			b.Write(text)
		}
		if b.Len() > 0 {
			name := componentsFolder + "/" + c.Name + ".yaml"
			add(name, b.Bytes())
			resources = append(resources, name)
		}
	}
	if len(refused) > 0 {
		return nil, &SecretsError{Rendered: refused}
	}
	if len(resources) == 0 {
		return nil, ErrEmpty
	}
	b, err := yaml.Marshal(map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources})
	add(kustomizationFile, b)
	return tree, err
}

func isSecret(o *stacks.Object) bool { return o.Group == "" && o.Kind == "Secret" }

// namespaces that components ask for, each once.
func namespaces(components []Component) ([]byte, error) {
	var names []string
	for _, c := range components {
		if c.Namespace != "" && !slices.Contains(names, c.Namespace) {
			names = append(names, c.Namespace)
		}
	}
	var b bytes.Buffer
	for _, name := range names {
		text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

// localConfig is an annotation with which a build leaves an object out, which an
// install of the same files has: see kustomize's konfig.LocalConfigAnnotation.
const localConfig = "config.kubernetes.io/local-config"

// document is an object as YAML, without what only an API server writes.
func document(o *stacks.Object) ([]byte, error) {
	var m map[string]any
	if err := utiljson.Unmarshal(o.Manifest, &m); err != nil {
		return nil, err
	}
	if md, ok := m["metadata"].(map[string]any); ok {
		for _, field := range []string{"uid", "resourceVersion", "managedFields"} {
			delete(md, field)
		}
		if o.Namespace == "" {
			delete(md, "namespace")
		}
		if annotations, ok := md["annotations"].(map[string]any); ok {
			delete(annotations, localConfig)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(b)
}
