package stacks

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ksctl/gitops/stacks/internal/helm"
)

// Capabilities of the cluster that a stack is rendered for. They are inputs of
// a render, so that it needs no cluster.
type Capabilities struct {
	// KubeVersion as the API server reports it, such as v1.36.3.
	KubeVersion string `json:"kubeVersion"`
	// APIVersions that the cluster serves, as <group>/<version> and
	// <group>/<version>/<kind>, sorted.
	APIVersions []string `json:"apiVersions,omitempty"`
}

// Request is everything that a render depends on, in plain values, so that it
// can run in another process.
type Request struct {
	// Root is the folder that the source's artifact is unpacked in. Nothing
	// outside it is read, but the charts that were fetched.
	Root string `json:"root"`
	// Digest of the artifact.
	Digest string `json:"digest"`
	// Path of the stack below Root, as in KsctlInstall.spec.path.
	Path string `json:"path"`
	// Stack is the name of the stack.
	Stack string `json:"stack"`
	// Install names who renders: the seed of random functions and the release.
	Install Identity `json:"install"`
	// Choices of the install.
	Choices Choices `json:"choices"`
	// Charts of repositories, fetched: those that the function Charts names.
	Charts []FetchedChart `json:"charts,omitempty"`
	// WithoutCharts leaves components out, with a warning, whose chart is not among them.
	WithoutCharts bool `json:"withoutCharts,omitempty"`
	// ChartLimits bound each chart. What renders within them renders the same.
	ChartLimits ChartLimits `json:"chartLimits,omitzero"`
	// Capabilities of the target.
	Capabilities Capabilities `json:"capabilities"`
	// SecretKey keys the hashes of Secrets, so that a published hash tells
	// nothing about the content.
	SecretKey []byte `json:"secretKey,omitempty"`
	// Keys tells apart with which keys encrypted files are decrypted, such as a keyed hash
	// of them. With other keys, something else may be rendered, or nothing.
	Keys string `json:"keys,omitempty"`
	// Decrypted is what encrypted files hold, by their path below Root. Where Keys are
	// set it follows from them and from the files, and is no input of the digest.
	Decrypted map[string][]byte `json:"decrypted,omitempty"`
}

// ChartLimits bound one chart, its subcharts included and unpacked; what is 0 is as in
// DefaultChartLimits.
type ChartLimits struct {
	Bytes int64 `json:"bytes,omitempty"`
	Files int   `json:"files,omitempty"`
}

// DefaultChartLimits are far above what charts need.
func DefaultChartLimits() ChartLimits { return ChartLimits(helm.DefaultLimits()) }

// Identity names an install.
type Identity struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Result is a rendered stack.
type Result struct {
	// Digest of every input of the render: two requests of the same digest
	// render the same.
	Digest string `json:"digest"`
	// StackVersion is the version that the stack declares.
	StackVersion string `json:"stackVersion"`
	// Components in the order in which they are applied: every component comes
	// after those it depends on.
	Components []RenderedComponent `json:"components"`
	// Warnings for the user; the render is whole nevertheless.
	Warnings []string `json:"warnings,omitempty"`
	// Trace is what was read of the source, and a hash of what was seen: another
	// revision in which all of it is the same renders the same.
	Trace map[string]string `json:"trace,omitempty"`
	// Decrypted are the encrypted files, and the values, that it was rendered from.
	Decrypted []string `json:"decrypted,omitempty"`
}

// RenderedComponent is the objects of one component.
type RenderedComponent struct {
	Name      string   `json:"name"`
	Version   string   `json:"version,omitempty"`
	DependsOn []string `json:"dependsOn,omitempty"`
	// Wave is the length of the longest chain of dependencies below the component.
	Wave int `json:"wave"`
	// ReadyExpr is the CEL expression that judges objects of kinds that kstatus can't.
	ReadyExpr string `json:"readyExpr,omitempty"`
	// CreateNamespace names the namespace to create for the component, when it asks for one.
	CreateNamespace string `json:"createNamespace,omitempty"`
	// Chart of a repository that the component was rendered from.
	Chart *ChartRef `json:"chart,omitempty"`
	// ChartDependencies are the charts of repositories that the component's chart in
	// the source was given, because it does not bring them.
	ChartDependencies []ChartRef `json:"chartDependencies,omitempty"`
	// Release is the Helm release that the component would be if Helm installed it;
	// nil when it is no chart.
	Release *Release `json:"release,omitempty"`
	// Objects sorted as they are applied: Namespaces, CRDs, pre hooks by weight,
	// everything else by kind, webhooks, post hooks by weight.
	Objects []Object `json:"objects"`
}

// HelmRecordPrefix is what the names of the Secrets begin with that Helm records
// its releases in.
const HelmRecordPrefix = "sh.helm.release.v1."

// Release names a Helm release.
type Release struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Ref names an object of a cluster.
type Ref struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// GroupKind of the object.
func (r Ref) GroupKind() schema.GroupKind { return schema.GroupKind{Group: r.Group, Kind: r.Kind} }

// Object is one rendered manifest.
type Object struct {
	Ref
	// Version of the API.
	Version string `json:"version"`
	// NamespaceDefaulted is true when the manifest named no namespace and the
	// component's was put in. It is wrong for a cluster-scoped kind, which only
	// the cluster can tell for kinds that are neither built in nor in the stack.
	NamespaceDefaulted bool `json:"namespaceDefaulted,omitempty"`
	// Hook is set for Helm hooks.
	Hook *Hook `json:"hook,omitempty"`
	// Manifest is canonical JSON: keys sorted, no white space.
	Manifest json.RawMessage `json:"manifest"`
	// Hash of the manifest: 16 characters of base64url. Keyed for Secrets.
	Hash string `json:"hash"`
	// File and Line are where the manifest came from, when that is known.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// HookPhase is when a hook runs, relative to the other objects of its component.
type HookPhase string

// Hook phases.
const (
	HookPre  HookPhase = "Pre"
	HookPost HookPhase = "Post"
	// HookPreRemove is for a Job that is suspended until its component is removed.
	HookPreRemove HookPhase = "PreRemove"
)

// Hook makes an object an ordered step of its component.
type Hook struct {
	Phase  HookPhase `json:"phase"`
	Weight int       `json:"weight"`
	// DeletePolicies are Helm's: before-hook-creation, hook-succeeded, hook-failed.
	DeletePolicies []string `json:"deletePolicies,omitempty"`
}
