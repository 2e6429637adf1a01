package stacks

// Serves is the kind that a stack serves once a KsctlKind publishes it: each object of it is an
// install of the stack.
type Serves struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	// Plural defaults to the kind in lower case with an s.
	Plural     string   `json:"plural,omitempty"`
	ShortNames []string `json:"shortNames,omitempty"`
	Categories []string `json:"categories,omitempty"`
	// Versions have one schema. The first one is stored.
	Versions []ServedVersion `json:"versions"`
	// Columns are printed by kubectl get, beside Age, Ready and Status.
	Columns []ServedColumn `json:"columns,omitempty"`
	// Scale adds the subresource scale.
	Scale *ServedScale `json:"scale,omitempty"`
	// Schema of spec, as in a CustomResourceDefinition. format: password makes a field sensitive.
	Schema map[string]any `json:"schema,omitempty"`
	// Validations are rules of the whole object. Those of spec are in its schema.
	Validations []ServedValidation `json:"validations,omitempty"`
	// Install is the spec of the install of an object. A value is a literal or {expr: CEL}, over
	// the object as `self`.
	Install map[string]any `json:"install,omitempty"`
	// StatusSchema has the fields of the status beside those of an install. Status sets them like
	// Install, also over `ready` and `objects`.
	StatusSchema map[string]any `json:"statusSchema,omitempty"`
	Status       map[string]any `json:"status,omitempty"`
}

// ServedVersion is a version of a served kind.
type ServedVersion struct {
	Name       string `json:"name"`
	Deprecated bool   `json:"deprecated,omitempty"`
}

// ServedColumn is a column of kubectl get.
type ServedColumn struct {
	Name string `json:"name"`
	// Type is string, integer, number, boolean or date.
	Type string `json:"type"`
	// Path is a JSON path such as .status.url.
	Path        string `json:"path"`
	Description string `json:"description,omitempty"`
	// Priority above 0 shows the column with -o wide only.
	Priority int32 `json:"priority,omitempty"`
}

// ServedValidation is a rule of x-kubernetes-validations.
type ServedValidation struct {
	// Rule is a CEL expression over the object as `self`: its spec and metadata.name.
	Rule string `json:"rule"`
	// Message states why an object is refused.
	Message string `json:"message"`
}

// ServedScale has the JSON paths of the subresource scale.
type ServedScale struct {
	SpecReplicas   string `json:"specReplicas"`
	StatusReplicas string `json:"statusReplicas"`
	LabelSelector  string `json:"labelSelector,omitempty"`
}
