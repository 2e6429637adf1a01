// Package v1 holds the kinds of apps.ksctl.com/v1: installs of stacks, their removals, the
// sources they come from and the inventory of what they own.
//
// +kubebuilder:object:generate=true
// +groupName=apps.ksctl.com
package v1
