// Package cluster reconciles KsctlClusters: it reads a cluster's kubeconfig from its imported state
// or from a Secret, writes it to Secrets for Flux and Argo CD, and probes the cluster's API server.
package cluster
