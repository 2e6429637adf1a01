// Package cluster reconciles KsctlClusters: it takes a cluster's kubeconfig from its
// imported state, gives it to whom it concerns as Secrets, and asks the cluster how it is.
package cluster
