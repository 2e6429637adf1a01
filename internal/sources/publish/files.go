package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing/fstest"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// Component contains the rendered objects of a component of a stack.
type Component struct {
	Name string
	// Namespace is the namespace that the component wants to be created; empty for none.
	Namespace string
	// Objects are in the order in which they are applied. If the Namespace of an object is empty,
	// it is published without a namespace, even if its manifest has one.
	Objects []stacks.Object
}

// Names of files in an artifact.
const (
	kustomizationFile = "kustomization.yaml"
	namespacesFile    = "namespaces.yaml"
	componentsDir     = "components"
)

// SecretsError means that nothing is published because of Secrets.
type SecretsError struct {
	// Rendered are Secrets that the stack renders, Read are Secrets that its values come from.
	Rendered, Read []string
	// Decrypted are the encrypted inputs of the render.
	Decrypted []string
}

// Error implements error.
func (e *SecretsError) Error() string {
	const risk = "and anyone who can reach the controller's file server can read published artifacts"
	switch {
	case len(e.Read) > 0:
		return fmt.Sprintf("spec.valuesFrom or spec.parametersFrom reads Secrets (%s), %s: read no Secrets, or set "+
			"spec.publish.secrets to Include to publish their values", reconcile.JoinNames(e.Read), risk)
	case len(e.Decrypted) > 0:
		return fmt.Sprintf("the stack is rendered from decrypted files (%s), %s: set spec.publish.secrets to Include "+
			"to publish their content", reconcile.JoinNames(e.Decrypted), risk)
	}
	return fmt.Sprintf("the stack renders Secrets (%s), %s: set spec.publish.secrets to Omit to leave them out, or "+
		"to Include to publish them", reconcile.JoinNames(e.Rendered), risk)
}

// ErrEmpty means that nothing is published because there are no objects: consumers of an empty
// artifact would delete everything.
var ErrEmpty = errors.New("the stack renders no objects to publish: the published artifact is kept; " +
	"delete the KsctlInstall to withdraw it")

// Files returns the files of an artifact: a kustomization with one file per component, in their
// order. It omits pre-remove hooks: only this controller can run them at the right time.
func Files(components []Component, secrets appsv1.PublishedSecrets) (fs.FS, error) {
	tree := fstest.MapFS{}
	add := func(name string, content []byte) { tree[name] = &fstest.MapFile{Data: content, Mode: 0o644} }
	var secretNames, resources []string
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
			case o.Hook != nil && (o.Hook.Phase == stacks.HookPreRemove || o.Hook.Phase == stacks.HookInactive):
				continue
			case isSecret(o) && secrets == appsv1.SecretsOmit:
				continue
			case isSecret(o) && secrets != appsv1.SecretsInclude:
				secretNames = append(secretNames, o.Namespace+"/"+o.Name)
				continue
			}
			text, err := toYAML(o)
			if err != nil {
				return nil, fmt.Errorf("manifest of %s: %w", o.Ref, err)
			}
			b.WriteString("---\n")
			b.Write(text)
		}
		if b.Len() > 0 {
			name := componentsDir + "/" + c.Name + ".yaml"
			add(name, b.Bytes())
			resources = append(resources, name)
		}
	}
	if len(secretNames) > 0 {
		return nil, &SecretsError{Rendered: secretNames}
	}
	if len(resources) == 0 {
		return nil, ErrEmpty
	}
	b, err := yaml.Marshal(map[string]any{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": resources})
	add(kustomizationFile, b)
	return tree, err
}

func isSecret(o *stacks.Object) bool { return o.Group == "" && o.Kind == "Secret" }

// namespaces returns manifests of the namespaces that components want, without duplicates.
func namespaces(components []Component) ([]byte, error) {
	var names []string
	for _, c := range components {
		if c.Namespace != "" && !slices.Contains(names, c.Namespace) {
			names = append(names, c.Namespace)
		}
	}
	var b bytes.Buffer
	for _, name := range names {
		text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name}})
		if err != nil {
			return nil, err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}

// localConfigAnnotation makes kustomize omit an object from a build, although an install of the
// same files applies it. See kustomize's konfig.LocalConfigAnnotation.
const localConfigAnnotation = "config.kubernetes.io/local-config"

// toYAML returns the manifest of an object in YAML, without fields that only an API server sets and
// without localConfigAnnotation.
func toYAML(o *stacks.Object) ([]byte, error) {
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
			delete(annotations, localConfigAnnotation)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(b)
}
