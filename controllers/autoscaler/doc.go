// Package autoscaler reconciles KsctlAutoScalers. It observes the nodes of a cluster and what
// its agent says of its machines, publishes both for Cluster Autoscaler (internal/scaling/nodegroup),
// writes down what that asks for, and has the agent do it, one operation at a time. Cluster
// Autoscaler itself it installs from the catalogue.
package autoscaler
