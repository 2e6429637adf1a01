package stacks

import (
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/helm"
)

// What a stack file must say in apiVersion and kind.
const (
	APIVersion = "apps.ksctl.com/v1"
	Kind       = "Stack"
	// FileName of a stack definition.
	FileName = "stack.yaml"
)

// Definition is a stack file that was read and found valid.
type Definition struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	// root is the folder of the source, dir that of the stack below it.
	root string
	dir  string
	file string
	// lines of the fields, for messages.
	lines document.Lines
	// limits of each chart, and the charts by component.
	limits helm.Limits
	charts map[string]*helm.Chart
}

// File is the path of the stack file below the root of the source.
func (d *Definition) File() string { return d.file }

// Dir is the folder of the stack file below the root of the source.
func (d *Definition) Dir() string { return d.dir }

// Metadata names the stack.
type Metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Spec of a stack.
type Spec struct {
	// Version of the stack itself, semver.
	Version     string   `json:"version"`
	Description string   `json:"description,omitempty"`
	Maintainers []string `json:"maintainers,omitempty"`
	// Kubernetes is the range of versions that the stack is for.
	Kubernetes string `json:"kubernetes,omitempty"`
	// Parameters are the stack-wide choices.
	Parameters *StackParameters `json:"parameters,omitempty"`
	Components []Component      `json:"components"`
}

// StackParameters are stack-wide choices, visible to the map of every component as `stack`.
type StackParameters struct {
	Schema map[string]any `json:"schema"`
}

// Component is one part of a stack: exactly one of Helm, Kustomize and Manifests.
type Component struct {
	Name      string   `json:"name"`
	DependsOn []string `json:"dependsOn,omitempty"`
	// Version is the default; that of the chart when unset.
	Version string `json:"version,omitempty"`
	// Namespace for objects that name none.
	Namespace       string `json:"namespace,omitempty"`
	CreateNamespace bool   `json:"createNamespace,omitempty"`

	Helm      *Helm      `json:"helm,omitempty"`
	Kustomize *Kustomize `json:"kustomize,omitempty"`
	// Manifests are files or folders.
	Manifests []string `json:"manifests,omitempty"`

	// Schema of the values that an install may override.
	Schema     map[string]any `json:"schema,omitempty"`
	Parameters *Parameters    `json:"parameters,omitempty"`
	// ReadyExpr is CEL over `self`, the object, for kinds that kstatus can't judge.
	ReadyExpr string `json:"readyExpr,omitempty"`
	// PreRemove keeps the component's Jobs suspended until what the component
	// depends on is removed, or the whole stack: they run and are waited for before
	// anything is deleted.
	PreRemove bool `json:"preRemove,omitempty"`
}

// Helm renders a chart: of the source, or of a repository.
type Helm struct {
	// Chart is a folder or a .tgz, relative to the stack.
	Chart string `json:"chart,omitempty"`
	// Repository that has the chart called Name: https:// with an index.yaml, or
	// oci://. The component's version says which, exactly.
	Repository string `json:"repository,omitempty"`
	Name       string `json:"name,omitempty"`
	// Digest that the chart of that version must have, sha256:….
	Digest      string         `json:"digest,omitempty"`
	ReleaseName string         `json:"releaseName,omitempty"`
	Values      map[string]any `json:"values,omitempty"`
	ValuesFiles []string       `json:"valuesFiles,omitempty"`
}

// Kustomize builds a kustomization of the source.
type Kustomize struct {
	Path string `json:"path"`
}

// Parameters are further override keys of a component and what they turn into.
type Parameters struct {
	Schema map[string]any `json:"schema"`
	// Map is CEL over `params`, `stack` and `version`. Its result has the reserved
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
	Patch  string       `json:"patch"`
}

// PatchTarget selects what a patch changes.
type PatchTarget struct {
	Group              string `json:"group,omitempty"`
	Version            string `json:"version,omitempty"`
	Kind               string `json:"kind,omitempty"`
	Name               string `json:"name,omitempty"`
	Namespace          string `json:"namespace,omitempty"`
	LabelSelector      string `json:"labelSelector,omitempty"`
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}
