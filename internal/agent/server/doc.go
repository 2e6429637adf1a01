// Package server is our agent: it has a cluster have so many workers, and is asked to over gRPC,
// by the two services of package agentpb.
//
// A cluster has one operation at a time. It is written down before it begins ([Store]), done by a
// goroutine of the cluster's own, and taken up again at the next start if the agent ends in
// between; how far it had got is then told by what there is, never by what was remembered. Machines are
// made and deleted by a program (package provisioner). Before one is deleted its node is
// drained, by evictions alone, so that disruption budgets hold; after it, its Node object goes.
package server
