package provisioner

import (
	"context"
	"fmt"
	"time"
)

// APIVersion of requests and answers. A program refuses a request of a version that it does not
// know, and so does the agent with an answer.
const APIVersion = "agent.ksctl.com/v1"

// Verb is what a program is asked to do.
type Verb string

// Verbs.
const (
	// List answers with the workers that there are.
	List Verb = "List"
	// Create makes those workers of [From, Desired) that are not there, each of the size Size.
	// Every other one is left as it is.
	Create Verb = "Create"
	// Delete deletes those workers whose index is Desired or more; From is one more than the
	// index of the last one that there is. It deletes machines alone: pods were moved away
	// before, and Node objects are deleted afterwards.
	Delete Verb = "Delete"
)

// Cluster is which cluster it is about, in ksctl's words.
type Cluster struct {
	// Name of the cluster. Its workers are named <name>-vm-wp-<index>.
	Name string `json:"name"`
	// Cloud is that of the machines, such as aws.
	Cloud string `json:"cloud,omitempty"`
	// Type is ha, or selfmanaged from the second release of ksctl on.
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	// Distribution is what Kubernetes is installed with: k3s or kubeadm.
	Distribution string `json:"distribution,omitempty"`
}

// WorkerName is the name of the machine at a place in the array of workers.
func (c Cluster) WorkerName(index uint32) string { return fmt.Sprintf("%s-vm-wp-%d", c.Name, index) }

// Request is what a program reads.
type Request struct {
	APIVersion string `json:"apiVersion"`
	Operation  Verb   `json:"operation"`
	// ID of the operation that it is a part of; "" for List. A program that was killed is
	// asked again with the same one.
	ID      string  `json:"id,omitempty"`
	Cluster Cluster `json:"cluster"`
	// From and Desired bound the places that it is about: see Create and Delete.
	From    uint32 `json:"from,omitempty"`
	Desired uint32 `json:"desired,omitempty"`
	// Size of the machines that are made, in the cloud's words.
	Size string `json:"size,omitempty"`
	// Deadline is when the program is killed.
	Deadline *time.Time `json:"deadline,omitempty"`
}

// Worker is a machine.
type Worker struct {
	// Index is its place in the array of workers, from 0.
	Index uint32 `json:"index"`
	// Name of the machine: that of [Cluster.WorkerName].
	Name string `json:"name"`
	// Size, if it is known.
	Size string `json:"size,omitempty"`
	// Node is the name of its Node, if the program knows it.
	Node string `json:"node,omitempty"`
}

// Answer is what a program writes: an error, or what there is.
type Answer struct {
	APIVersion string `json:"apiVersion"`
	// Workers in any order. An answer to List has them, and if there are none an empty list.
	Workers []Worker `json:"workers,omitzero"`
	Error   *Error   `json:"error,omitempty"`
}

// Runner does what a request asks for. It is what the agent needs of a program, and what a
// program that is written in Go implements: see [Serve]. It returns the workers for List, sorted
// by their index; else they may be nil.
type Runner interface {
	Run(ctx context.Context, r Request) ([]Worker, error)
}

// RunnerFunc is a function that is a Runner.
type RunnerFunc func(ctx context.Context, r Request) ([]Worker, error)

// Run implements Runner.
func (f RunnerFunc) Run(ctx context.Context, r Request) ([]Worker, error) { return f(ctx, r) }
