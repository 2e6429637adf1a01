// Package v1alpha1 contains the kinds of storage.ksctl.com/v1alpha1: imports of cluster states into
// ksctl's store, and exports from it.
//
// +kubebuilder:object:generate=true
// +groupName=storage.ksctl.com
package v1alpha1
