// Package autoscaler reconciles KsctlAutoScalers. It observes the nodes of a cluster and the
// machines that its agent reports, and publishes both for Cluster Autoscaler
// (internal/scaling/nodegroup). It records the changes that Cluster Autoscaler requests in the
// status, and lets the agent carry them out, one operation at a time. It also installs Cluster
// Autoscaler from the catalog.
package autoscaler
