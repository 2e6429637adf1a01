package stacks

import (
	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/helm"
)

// Required apiVersion and kind of a stack file.
const (
	APIVersion = "apps.ksctl.com/v1"
	Kind       = "Stack"
	// FileName is the file name of a stack definition.
	FileName = "stack.yaml"
)

// Definition is a parsed and validated stack file.
type Definition struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	// root is the folder of the source; dir and file are the stack's folder and file below it.
	root string
	dir  string
	file string
	// lines are the line numbers of the fields, for messages.
	lines document.Lines
	// loader loads the charts.
	loader helm.Loader
	// charts are the charts in the source, by component name.
	charts map[string]*helm.Chart
	// expressions are the compiled expressions, by the path of their field.
	expressions map[string]*expr.Expression
}

// File returns the path of the stack file below the root of the source.
func (d *Definition) File() string { return d.file }

// Dir returns the folder of the stack file below the root of the source.
func (d *Definition) Dir() string { return d.dir }

// Metadata is the metadata of a stack.
type Metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec is the spec of a stack.
type Spec struct {
	// Version of the stack itself, semver.
	Version     string   `json:"version"`
	Description string   `json:"description,omitempty"`
	Maintainers []string `json:"maintainers,omitempty"`
	// Kubernetes is the range of Kubernetes versions that the stack supports.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Parameters are the stack-wide choices.
	Parameters *StackParameters `json:"parameters,omitempty"`
	// CommonMetadata of all objects of the stack.
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`
	Components     []Component     `json:"components"`
	// Serves is the kind that the stack serves.
	Serves *Serves `json:"serves,omitempty"`
}

// StackParameters are stack-wide choices. The parameters.map of every component reads them as
// `stack`.
type StackParameters struct {
	Schema map[string]any `json:"schema"`
}

// Component is one part of a stack: exactly one of Helm, Kustomize and Manifests.
type Component struct {
	Name      string   `json:"name"`
	DependsOn []string `json:"dependsOn,omitempty"`
	// Version is the default version. Defaults to the version of the chart.
	Version Text `json:"version,omitzero"`
	// Namespace of objects without a namespace.
	Namespace       Text `json:"namespace,omitzero"`
	CreateNamespace bool `json:"createNamespace,omitempty"`

	Helm      *Helm      `json:"helm,omitempty"`
	Kustomize *Kustomize `json:"kustomize,omitempty"`
	// Manifests are files or folders.
	Manifests []string `json:"manifests,omitempty"`
	// Variables replace ${name} in the rendered objects, as in Flux.
	Variables map[string]Text `json:"variables,omitempty"`
	// Fields set fields of the rendered objects from parameters, after Variables.
	Fields []Field `json:"fields,omitempty"`
	// CommonMetadata, NamePrefix and NameSuffix change the rendered objects after Fields.
	CommonMetadata *CommonMetadata `json:"commonMetadata,omitempty"`
	NamePrefix     Text            `json:"namePrefix,omitzero"`
	NameSuffix     Text            `json:"nameSuffix,omitzero"`
	// Patches change the rendered objects after the names, and before those of an install.
	Patches []Patch `json:"patches,omitempty"`

	// Schema is the JSON schema of the values that an install may override.
	Schema     map[string]any `json:"schema,omitempty"`
	Parameters *Parameters    `json:"parameters,omitempty"`
	// ReadyExpr is a CEL expression over `self`, the object, for kinds whose readiness kstatus
	// cannot compute.
	ReadyExpr string `json:"readyExpr,omitempty"`
	// Contribute is true for fields that the component sets in objects of other owners: an item of
	// a list, a key of a map. It neither creates nor deletes these objects.
	Contribute bool `json:"contribute,omitempty"`
	// PreRemove suspends the component's Jobs until one of its dependencies, or the whole stack,
	// is removed. Then the Jobs run, and nothing is deleted before they complete.
	PreRemove bool `json:"preRemove,omitempty"`
	// Retain keeps objects that left the render, because their name depends on their content.
	Retain *Retain `json:"retain,omitempty"`
}

// Retain is how many objects stay in the cluster after they left the render of their component.
type Retain struct {
	// Last is the number of objects of each kind: those that left last.
	Last Number `json:"last,omitzero"`
}

// CommonMetadata are labels and annotations of all objects. Selectors and pod templates stay.
type CommonMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Helm renders a chart from the source or from a repository.
type Helm struct {
	// Chart is a folder or a .tgz, relative to the stack.
	Chart string `json:"chart,omitempty"`
	// Repository of the chart Name: https:// with an index.yaml, or oci://. The component's
	// version is the exact chart version.
	Repository string `json:"repository,omitempty"`
	Name       Text   `json:"name,omitzero"`
	// Digest is the expected digest of that chart version, sha256:….
	Digest      string         `json:"digest,omitempty"`
	ReleaseName Text           `json:"releaseName,omitzero"`
	Values      map[string]any `json:"values,omitempty" dialect:"helm"`
	ValuesFiles []string       `json:"valuesFiles,omitempty"`
	// CRDs and Hooks default to Apply and Run.
	CRDs  appsv1.CRDPolicy  `json:"crds,omitempty"`
	Hooks appsv1.HookPolicy `json:"hooks,omitempty"`
	// SkipSchemaValidation is true to not check values with the schemas of the chart.
	SkipSchemaValidation bool `json:"skipSchemaValidation,omitempty"`
}

// Kustomize builds a kustomization in the source.
type Kustomize struct {
	Path string `json:"path"`
}

// Parameters are additional override keys of a component, and their mapping to an override.
type Parameters struct {
	Schema map[string]any `json:"schema,omitempty"`
	// Map is a CEL expression over the variables of Field.Value. It returns a map with the reserved
	// override keys: values, images, replicas, patches.
	Map string `json:"map,omitempty"`
}

// Image changes the name, tag or digest of an image, as in a kustomization.
type Image struct {
	Name    string `json:"name"`
	NewName string `json:"newName,omitempty"`
	NewTag  string `json:"newTag,omitempty"`
	Digest  string `json:"digest,omitempty"`
}

// Replica changes the number of replicas, as in a kustomization.
type Replica struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// Patch is a strategic merge or JSON 6902 patch, as in a kustomization.
type Patch struct {
	Target *PatchTarget `json:"target,omitempty"`
	// Patch is an object (strategic merge), a list of operations (JSON 6902), or the text of one of
	// them. With a target, an object needs no kind and no name.
	Patch any `json:"patch"`
}

// PatchTarget selects the objects that a patch changes.
type PatchTarget struct {
	Group              string `json:"group,omitempty"`
	Version            string `json:"version,omitempty"`
	Kind               string `json:"kind,omitempty"`
	Name               string `json:"name,omitempty"`
	Namespace          string `json:"namespace,omitempty"`
	LabelSelector      string `json:"labelSelector,omitempty"`
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}
