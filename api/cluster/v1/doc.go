// Package v1 holds the kinds of cluster.ksctl.com/v1: the clusters that there are, and how
// they are reached.
//
// +kubebuilder:object:generate=true
// +groupName=cluster.ksctl.com
package v1
