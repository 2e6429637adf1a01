// Package v1 contains the kinds of cluster.ksctl.com/v1: clusters and their access, and the scaling
// of their workers.
//
// +kubebuilder:object:generate=true
// +groupName=cluster.ksctl.com
package v1
