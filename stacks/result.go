package stacks

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/helm"
)

// Capabilities of the target cluster. They are inputs of a render, so that it needs no cluster.
type Capabilities struct {
	// KubeVersion as the API server reports it, such as v1.36.3.
	KubeVersion string `json:"kubeVersion"`
	// APIVersions that the cluster serves, as <group>/<version> and
	// <group>/<version>/<kind>, sorted.
	APIVersions []string `json:"apiVersions,omitempty"`
}

// Request has all inputs of a render, in plain values, so that it can run in another process.
type Request struct {
	// Root is the folder with the unpacked artifact of the source. A render reads nothing outside
	// of it except for fetched charts.
	Root string `json:"root"`
	// Digest of the artifact.
	Digest string `json:"digest"`
	// Path of the stack below Root, as in KsctlInstall.spec.path.
	Path string `json:"path"`
	// Stack is the name of the stack.
	Stack string `json:"stack"`
	// Install identifies the install. It seeds random functions and is the default namespace.
	Install Identity `json:"install"`
	// Choices of the install.
	Choices Choices `json:"choices"`
	// Charts are the fetched charts from repositories: those of RequiredCharts and of a
	// MissingChartsError.
	Charts []FetchedChart `json:"charts,omitempty"`
	// WithoutCharts skips components whose chart is not in Charts, with a warning.
	WithoutCharts bool `json:"withoutCharts,omitempty"`
	// ChartLimits bound each chart. They do not change the result of a chart within the limits.
	ChartLimits ChartLimits `json:"chartLimits,omitzero"`
	// Capabilities of the target.
	Capabilities Capabilities `json:"capabilities"`
	// Cluster has the facts of the KsctlCluster that the stack is installed on; nil without one. If
	// the stack reads others, the error of a render is a *MissingFactsError.
	Cluster *ClusterFacts `json:"cluster,omitempty"`
	// Releases are the records of the releases that chart components have, by component. A
	// component without one is rendered as an install. Nil: the caller keeps no records.
	Releases map[string]ReleaseRecord `json:"releases,omitempty"`
	// Generate is how charts generate values such as passwords and certificates.
	Generate generated.Options `json:"generate,omitzero"`
	// SecretKey keys the hashes of Secrets, so that a published hash does not disclose their
	// content.
	SecretKey []byte `json:"secretKey,omitempty"`
	// DecryptionKeyID identifies the decryption keys, for example by a keyed hash of them. With
	// other keys, a render may return another result or fail.
	DecryptionKeyID string `json:"keys,omitempty"`
	// Decrypted is the content of encrypted files, by path below Root. If DecryptionKeyID is set,
	// the content follows from the keys and the files, and is not an input of the digest.
	Decrypted map[string][]byte `json:"decrypted,omitempty"`
}

// ChartLimits are the limits of one unpacked chart, including its subcharts. A limit of 0 means the
// one of DefaultChartLimits.
type ChartLimits struct {
	Bytes int64 `json:"bytes,omitempty"`
	Files int   `json:"files,omitempty"`
}

// DefaultChartLimits returns limits that are far above the size of usual charts.
func DefaultChartLimits() ChartLimits { return ChartLimits(helm.DefaultLimits()) }

// Identity is the namespace and name of an install.
type Identity struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Result is a rendered stack.
type Result struct {
	// Digest of all inputs of the render. Requests with the same digest render the same result.
	Digest string `json:"digest"`
	// StackVersion is the version that the stack declares.
	StackVersion string `json:"stackVersion"`
	// Components in apply order: every component comes after its dependencies.
	Components []RenderedComponent `json:"components"`
	// Warnings for the user. The result is complete nevertheless.
	Warnings []string `json:"warnings,omitempty"`
	// Trace maps each path that the render read in the source to a hash of its content. A revision
	// with the same hashes renders the same result.
	Trace map[string]string `json:"trace,omitempty"`
	// Decrypted lists the encrypted files and values that the result was rendered from.
	Decrypted []string `json:"decrypted,omitempty"`
	// Generated has the generated values of each component for which they differ from those of the
	// request. The next render needs them.
	Generated map[string]*generated.Values `json:"generated,omitempty"`
}

// RenderedComponent is one component of a rendered stack with its objects.
type RenderedComponent struct {
	Name      string   `json:"name"`
	Version   string   `json:"version,omitempty"`
	DependsOn []string `json:"dependsOn,omitempty"`
	// Wave is the length of the longest chain of dependencies below the component.
	Wave int `json:"wave"`
	// ReadyExpr is a CEL expression for the readiness of kinds that kstatus does not support.
	ReadyExpr string `json:"readyExpr,omitempty"`
	// Contribute is true if the objects are fields for objects of other owners.
	Contribute bool `json:"contribute,omitempty"`
	// Retain is the number of objects of each kind that stay after they left the render. Nil if
	// they are removed like others.
	Retain *int32 `json:"retain,omitempty"`
	// CreateNamespace is the namespace to create for the component. Empty to create none.
	CreateNamespace string `json:"createNamespace,omitempty"`
	// Chart is the chart from a repository that the component was rendered from.
	Chart *ChartRef `json:"chart,omitempty"`
	// ChartDependencies are the fetched dependencies of the component's chart, if the chart is in
	// the source and does not vendor them.
	ChartDependencies []ChartRef `json:"chartDependencies,omitempty"`
	// ReadsCluster is true if the objects may depend on what is in the cluster: a template of a
	// chart reads .Capabilities.APIVersions or calls lookup.
	ReadsCluster bool `json:"readsCluster,omitempty"`
	// Release is the Helm release that Helm would create for the component. Nil if the component
	// is not a Helm chart.
	Release *Release `json:"release,omitempty"`
	// Record is the record of the release that was rendered. Its revision is 0 if the component is
	// not a Helm chart.
	Record ReleaseRecord `json:"record,omitzero"`
	// Notes is what the chart tells its users: its NOTES.txt, without values that are not public.
	Notes string `json:"notes,omitempty"`
	// Objects in apply order: Namespaces, CRDs, pre hooks by weight, other objects by kind,
	// webhooks, post hooks by weight.
	Objects []Object `json:"objects"`
	// Tests are the test hooks of the chart, which are not part of the stack.
	Tests []Object `json:"tests,omitempty"`
}

// HelmReleaseSecretPrefix is the name prefix of the Secrets in which Helm stores its releases.
const HelmReleaseSecretPrefix = "sh.helm.release.v1."

// Release is the namespace and name of a Helm release.
type Release struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Ref identifies an object in a cluster.
type Ref struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// GroupKind returns the group and kind of the object.
func (r Ref) GroupKind() schema.GroupKind { return schema.GroupKind{Group: r.Group, Kind: r.Kind} }

// Object is one rendered manifest.
type Object struct {
	Ref
	// Version of the API.
	Version string `json:"version"`
	// NamespaceDefaulted is true if the manifest had no namespace and the component's namespace
	// was set. The namespace is wrong for a cluster-scoped kind. If a kind is neither built in nor
	// defined in the stack, only the cluster knows its scope.
	NamespaceDefaulted bool `json:"namespaceDefaulted,omitempty"`
	// Generated is true for the Secret with the generated values of the component. It is applied
	// before what was rendered from them.
	Generated bool `json:"generated,omitempty"`
	// Hook is set for Helm hooks and for the Jobs of components with preRemove.
	Hook *Hook `json:"hook,omitempty"`
	// InitialFields are JSON pointers to fields that only the first release sets. They are sent at
	// creation, and then left to whoever changes them.
	InitialFields []string `json:"initialFields,omitempty"`
	// CreateOnly is true for an object that is created when it is missing, and never changed.
	CreateOnly bool `json:"createOnly,omitempty"`
	// Recreate is true for an object that is recreated if a change affects an immutable field.
	Recreate bool `json:"recreate,omitempty"`
	// IgnoreHealth is true for an object that need not be ready.
	IgnoreHealth bool `json:"ignoreHealth,omitempty"`
	// Serves is what a CustomResourceDefinition serves; nil for other kinds.
	Serves *ServedKind `json:"serves,omitempty"`
	// AnsweredBy has the ids of the workloads behind the Services of a webhook configuration, as
	// far as they are part of the component. It is not created before they are ready.
	AnsweredBy []string `json:"answeredBy,omitempty"`
	// Manifest is canonical JSON: keys sorted, no whitespace.
	Manifest json.RawMessage `json:"manifest"`
	// Sensitive is true if the manifest may have values of a Secret that the install reads.
	Sensitive bool `json:"sensitive,omitempty"`
	// Hash of the manifest: 16 characters of base64url. Keyed for Secrets, and what is sensitive or
	// has generated values.
	Hash string `json:"hash"`
	// File and Line are the origin of the manifest. Line is 0 if unknown.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// HookPhase is when a hook runs, relative to the other objects of its component.
type HookPhase string

// Hook phases.
const (
	HookPre  HookPhase = "Pre"
	HookPost HookPhase = "Post"
	// HookPreRemove is the phase of a Job that stays suspended until its component is removed.
	HookPreRemove HookPhase = "PreRemove"
	// HookPreDelete and HookPostDelete are the phases of hooks that are created before and after
	// the other objects are removed. They are not part of a result, see DecodeHooks.
	HookPreDelete  HookPhase = "PreDelete"
	HookPostDelete HookPhase = "PostDelete"
	// HookTest is the phase of a hook that is created on request, see RenderedComponent.Tests.
	HookTest HookPhase = "Test"
	// HookInactive is the phase of a hook of an install in a release that is an upgrade, and the
	// other way round. It is not applied; an earlier one stays as it is.
	HookInactive HookPhase = "Inactive"
)

// Hook marks an object as an ordered step of its component.
type Hook struct {
	Phase HookPhase `json:"phase"`
	// AlsoPost is true for a hook before the other objects that is one after them, too. Jobs and
	// Pods run only before.
	AlsoPost bool `json:"alsoPost,omitempty"`
	Weight   int  `json:"weight"`
	// DeletePolicies are Helm's hook delete policies: before-hook-creation, hook-succeeded,
	// hook-failed.
	DeletePolicies []string `json:"deletePolicies,omitempty"`
	// Stays is true for an ordinary object that is applied when a hook of its name would be. It is
	// corrected and removed like others.
	Stays bool `json:"stays,omitempty"`
	// TTLSeconds is the ttlSecondsAfterFinished of a Job: the time after which it is deleted once
	// its success is recorded. The cluster does not get it.
	TTLSeconds *int64 `json:"ttlSeconds,omitempty"`
}
