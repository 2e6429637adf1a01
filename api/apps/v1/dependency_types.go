package v1

// Dependency is an object that must be ready before an install starts, and before it applies a
// change. Until then nothing new is applied, and installed objects are kept as they were applied.
//
// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) == (has(self.kind) && self.kind != 'KsctlInstall') || (has(self.apiVersion) && self.apiVersion == 'apps.ksctl.com/v1')",message="set apiVersion and kind together for kinds other than KsctlInstall"
// +kubebuilder:validation:XValidation:rule="!has(self.readyExpr) || size(self.readyExpr) == 0 || !has(self.kind) || self.kind != 'Secret'",message="readyExpr is not allowed for Secrets"
type Dependency struct {
	// APIVersion of the object. Defaults to that of KsctlInstall.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the object. Defaults to KsctlInstall.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Namespace of the object. Defaults to the namespace of the install. Must be unset for
	// cluster-scoped kinds.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// ReadyExpr is a CEL expression that is true if the object is ready, for kinds whose conditions
	// do not report readiness. Its variables are self, the object, and the apiVersion, kind,
	// metadata, spec and status of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ReadyExpr string `json:"readyExpr,omitempty"`
}

// OfInstall reports whether the dependency is another KsctlInstall.
func (d *Dependency) OfInstall() bool { return d.Kind == "" || d.Kind == KsctlInstallKind }
