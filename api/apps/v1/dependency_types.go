package v1

// Dependency is an object that must be ready before an install begins and
// before it takes in a change. What is installed is kept as it is meanwhile.
//
// +kubebuilder:validation:XValidation:rule="has(self.apiVersion) == (has(self.kind) && self.kind != 'KsctlInstall') || (has(self.apiVersion) && self.apiVersion == 'apps.ksctl.com/v1')",message="a kind other than KsctlInstall needs its apiVersion, and an apiVersion its kind"
// +kubebuilder:validation:XValidation:rule="!has(self.readyExpr) || size(self.readyExpr) == 0 || !has(self.kind) || self.kind != 'Secret'",message="an expression never sees a Secret"
type Dependency struct {
	// APIVersion of the object; that of KsctlInstall when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind of the object; KsctlInstall when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`

	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Namespace of the object; that of the install when unset. Of a kind that
	// lives in no namespace it must be unset.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// ReadyExpr is a CEL expression over the object (self, and its apiVersion,
	// kind, metadata, spec and status) that is true when it is ready, for kinds
	// whose conditions do not tell.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ReadyExpr string `json:"readyExpr,omitempty"`
}

// OfInstall is true for a dependency on another KsctlInstall.
func (d *Dependency) OfInstall() bool { return d.Kind == "" || d.Kind == "KsctlInstall" }
