// Package server implements the agent: a gRPC server with the two services of package agentpb that
// scales the workers of clusters.
//
// A cluster has at most one running operation. The agent records an operation ([Store]) before it
// starts, executes it in one goroutine per cluster, and resumes it after a restart. On resume the
// agent derives the progress from the existing workers, never from what it recorded. A program
// (package provisioner) creates and deletes the machines. Before the agent deletes a machine, it
// drains the node, using only evictions so that disruption budgets are respected. Afterwards it
// deletes the Node object.
package server
