package v1

// ClusterValues is the kind of a ValuesReference to values that depend on the cluster.
const ClusterValues = "Cluster"

// ClusterValue is one value that depends on the cluster.
type ClusterValue struct {
	// Path of the value, such as ingress.host. A dot in a key is escaped with a backslash (\.).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Path string `json:"path"`

	// Expr is a CEL expression that returns the value: a string of up to 4 KiB, a number or a bool.
	// Its variables are fields of the KsctlCluster: spec; name, namespace, labels and annotations
	// of metadata; facts and kubernetesVersion of status.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expr string `json:"expr"`
}

// ValuesReference reads values for one component from a ConfigMap or Secret in the install's
// namespace, or from the KsctlCluster that the stack is installed on.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'Cluster' ? !has(self.name) && !has(self.key) && has(self.set) : has(self.name) && !has(self.set)",message="kinds ConfigMap and Secret require name and do not allow set; kind Cluster requires set and does not allow name and key"
// +kubebuilder:validation:XValidation:rule="self.kind != 'Cluster' || !has(self.targetPath)",message="targetPath is not allowed for kind Cluster"
type ValuesReference struct {
	// Kind of the object with the values: ConfigMap or Secret, or Cluster for the KsctlCluster that
	// the stack is installed on.
	// +kubebuilder:validation:Enum=ConfigMap;Secret;Cluster
	Kind string `json:"kind"`

	// Name of the object with the values.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Set lists the values, for kind Cluster.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=32
	Set []ClusterValue `json:"set,omitempty"`

	// Key of the object's data. Defaults to values.yaml.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`

	// TargetPath is the path of the value that the key has, such as auth.password or hosts[0], in
	// the notation of Helm's --set. The content of the key is read as the value of --set, and must
	// be one value. Without a path, the key has a YAML document of values.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=250
	TargetPath string `json:"targetPath,omitempty"`

	// Component that uses the values.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Component string `json:"component"`

	// Optional allows that the object or key does not exist.
	// +optional
	Optional bool `json:"optional,omitempty"`
}

// ParametersReference reads parameters of the stack from a ConfigMap or Secret in the install's
// namespace.
//
// +kubebuilder:validation:XValidation:rule="!has(self.targetPath) || has(self.key)",message="targetPath requires key"
type ParametersReference struct {
	// Kind of the object with the parameters.
	// +kubebuilder:validation:Enum=ConfigMap;Secret
	Kind string `json:"kind"`

	// Name of the object with the parameters.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the object's data that has a YAML document of parameters. Without a key, each key of
	// the object is the parameter of that name, read as the type in its schema.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`

	// TargetPath is the path of the parameter that the content of the key is the value of, such as
	// database.password. It is read as the type in the schema of the parameter. A dot in a key is
	// escaped with a backslash (\.).
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	TargetPath string `json:"targetPath,omitempty"`

	// Optional allows that the object or key does not exist.
	// +optional
	Optional bool `json:"optional,omitempty"`
}
