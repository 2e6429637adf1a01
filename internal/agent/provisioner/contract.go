package provisioner

import (
	"context"
	"fmt"
	"time"
)

// APIVersion is the version of requests and responses. Programs reject requests of unknown
// versions; the agent rejects responses of unknown versions.
const APIVersion = "agent.ksctl.com/v1"

// Verb is the operation of a request.
type Verb string

// Verbs.
const (
	// List returns all workers.
	List Verb = "List"
	// Create creates the missing workers with an index in [From, Desired), each of size Size. It
	// leaves every other worker unchanged.
	Create Verb = "Create"
	// Delete deletes the workers with an index of Desired or more. From is the highest existing
	// index plus one. Delete only deletes machines: the agent has moved their pods before, and
	// deletes their Node objects afterwards.
	Delete Verb = "Delete"
)

// Cluster identifies the cluster of a request, in ksctl's terms.
type Cluster struct {
	// Name is the name of the cluster. Its workers are named <name>-vm-wp-<index>.
	Name string `json:"name"`
	// Cloud is the cloud provider, such as aws.
	Cloud string `json:"cloud,omitempty"`
	// Type is ha, or selfmanaged from the second release of ksctl on.
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	// Distribution is the Kubernetes distribution: k3s or kubeadm.
	Distribution string `json:"distribution,omitempty"`
}

// WorkerName returns the name of the machine with an index.
func (c Cluster) WorkerName(index uint32) string { return fmt.Sprintf("%s-vm-wp-%d", c.Name, index) }

// Request is the input of a program.
type Request struct {
	APIVersion string `json:"apiVersion"`
	Operation  Verb   `json:"operation"`
	// ID is the ID of the agent's operation; "" for List. After a program was killed, the agent
	// repeats the request with the same ID.
	ID      string  `json:"id,omitempty"`
	Cluster Cluster `json:"cluster"`
	// From and Desired are the range of worker indexes: see Create and Delete.
	From    uint32 `json:"from,omitempty"`
	Desired uint32 `json:"desired,omitempty"`
	// Size is the instance type of new machines, as the cloud provider names it.
	Size string `json:"size,omitempty"`
	// Deadline is the time at which the agent kills the program.
	Deadline *time.Time `json:"deadline,omitempty"`
}

// Worker is a worker machine of a cluster.
type Worker struct {
	// Index is the index in the cluster's array of workers, from 0.
	Index uint32 `json:"index"`
	// Name is the name of the machine, as [Cluster.WorkerName] returns it.
	Name string `json:"name"`
	// Size is the instance type, if it is known.
	Size string `json:"size,omitempty"`
	// Node is the name of the Node, if the program knows it.
	Node string `json:"node,omitempty"`
}

// Response is the output of a program: the workers, or an error.
type Response struct {
	APIVersion string `json:"apiVersion"`
	// Workers are in any order. A response to List must set them: to an empty list if there are
	// none.
	Workers []Worker `json:"workers,omitzero"`
	Error   *Error   `json:"error,omitempty"`
}

// Runner executes requests. The agent uses [Program]; a program in Go implements Runner and passes
// it to [Serve]. Run returns the workers for List, sorted by index, and may return nil for other
// verbs.
type Runner interface {
	Run(ctx context.Context, r Request) ([]Worker, error)
}
