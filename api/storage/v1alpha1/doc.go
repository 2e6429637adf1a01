// Package v1alpha1 holds the kinds of storage.ksctl.com/v1alpha1: the state of clusters
// that ksctl exported, where it goes, and the way back.
//
// +kubebuilder:object:generate=true
// +groupName=storage.ksctl.com
package v1alpha1
