// Package nodegroup answers Cluster Autoscaler, as the provider externalgrpc: a pool of a
// KsctlAutoScaler is a node group. What is read is answered from memory, of what the controller
// published last; what is asked for is decided here, written down by the controller, and then
// done.
package nodegroup
