// Package kind reconciles KsctlKinds: it creates the CustomResourceDefinition of the kind that a
// stack serves, and reconciles each object of the kind as an install of the stack.
package kind
