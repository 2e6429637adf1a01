// Package v1 contains the kinds of apps.ksctl.com/v1: installs of stacks, their removals, the
// sources of stacks, and the inventories of owned objects.
//
// +kubebuilder:object:generate=true
// +groupName=apps.ksctl.com
package v1
