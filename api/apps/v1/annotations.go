package v1

// KindAnnotation is on the CustomResourceDefinition and the ClusterRoles of a KsctlKind: the id of
// the installation and the name of the KsctlKind, with a slash between them.
const KindAnnotation = "ksctl.com/kind"

// Annotations that users set on objects of a stack, with the value "true".
const (
	// KeepAnnotation keeps the object when it leaves the stack and when the install is deleted.
	KeepAnnotation = "ksctl.com/keep"
	// CreateOnlyAnnotation creates the object when it is missing, and never changes it.
	CreateOnlyAnnotation = "ksctl.com/create-only"
	// RecreateAnnotation recreates the object if a change affects an immutable field.
	RecreateAnnotation = "ksctl.com/recreate"
	// IgnoreHealthAnnotation leaves the object out of the health of its component.
	IgnoreHealthAnnotation = "ksctl.com/ignore-health"
)
