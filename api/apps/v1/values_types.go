package v1

// ClusterValues is the kind of a ValuesReference for what depends on the cluster.
const ClusterValues = "Cluster"

// ClusterValue is one value that depends on the cluster.
type ClusterValue struct {
	// Path of the value, such as ingress.host. A dot in a key is written as \.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Path string `json:"path"`

	// Expr is a CEL expression over the KsctlCluster that gives the value: a text of up to 4 KiB, a
	// number or a bool. It sees spec, of metadata name, namespace, labels and annotations, and of
	// status facts and kubernetesVersion.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expr string `json:"expr"`
}

// ValuesReference takes values for one component from a ConfigMap or a Secret
// in the install's namespace, or from the KsctlCluster that the install is for.
//
// +kubebuilder:validation:XValidation:rule="self.kind == 'Cluster' ? !has(self.name) && !has(self.key) && has(self.set) : has(self.name) && !has(self.set)",message="a ConfigMap and a Secret need their name, and Cluster has neither name nor key, but set"
type ValuesReference struct {
	// Kind of the object that holds the values; Cluster for the KsctlCluster that the install is for.
	// +kubebuilder:validation:Enum=ConfigMap;Secret;Cluster
	Kind string `json:"kind"`

	// Name of the object that holds the values.
	// +optional
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Set are the values of kind Cluster.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=32
	Set []ClusterValue `json:"set,omitempty"`

	// Key in its data. values.yaml when unset.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`

	// Component that the values are for.
	// +kubebuilder:validation:Pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
	// +kubebuilder:validation:MaxLength=63
	Component string `json:"component"`

	// Optional values may be absent.
	// +optional
	Optional bool `json:"optional,omitempty"`
}
