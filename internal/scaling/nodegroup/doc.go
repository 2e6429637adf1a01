// Package nodegroup serves Cluster Autoscaler's cloud provider externalgrpc: a pool of a
// KsctlAutoScaler is a node group. Reads are served from memory, from the state that the controller
// last published. For writes this package decides the change; the controller records it before the
// request returns, and carries it out afterwards.
package nodegroup
