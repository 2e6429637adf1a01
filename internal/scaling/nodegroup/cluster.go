package nodegroup

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Worker is a machine of the array of workers of a cluster.
type Worker struct {
	// Index in the array, from 0: the last one is the only one that may go.
	Index int32
	// Pool that it is of; "": of none.
	Pool string
	// Node that it joined as; "": it has not joined. ProviderID is that of the node, which
	// may be empty, and Ready is true while the node is.
	Node, ProviderID string
	Ready            bool
	// Deleting is true while the machine is being deleted.
	Deleting bool
}

// Failure is why machines of a pool could not be made.
type Failure struct {
	// OutOfResources is true where the cloud has no more of them.
	OutOfResources bool
	// Code and Message are for people. They have no secrets.
	Code, Message string
	// Count of the machines, which are in the pool's target.
	Count int32
	// Until then nothing more is made for the pool.
	Until time.Time
}

// Group is a pool, as Cluster Autoscaler sees it.
type Group struct {
	// ID is what Cluster Autoscaler knows it by, Name the pool's.
	ID, Name string
	// Min and Max machines, and how many there are to be.
	Min, Max, Target int32
	// Failure of the machines that were asked for last; nil: they came, or are on their way.
	Failure *Failure
	// Template is a core/v1 Node, marshalled: what the next node would be like. It is never empty.
	Template []byte
}

// Cluster is all that is answered of a cluster. It is not changed once it is published.
type Cluster struct {
	// Key of the KsctlAutoScaler.
	Key types.NamespacedName
	// Unready is why nothing can be said of the cluster now: each loop of the autoscaler
	// ends before it begins. nil: all is known.
	Unready error
	Mode    clusterv1.ScalingMode
	// MaxNodes that the cluster may have; 0 is no limit. OtherNodes are those that are no
	// worker of a pool.
	MaxNodes, OtherNodes int32
	// Busy is true while machines are made or deleted.
	Busy bool
	// Groups in the order of the spec, and Workers in that of the array.
	Groups  []Group
	Workers []Worker
}

// Change of a pool.
type Change struct {
	// Pool by its name.
	Pool string
	// Target that it gets.
	Target int32
	// Forgive is how many machines that could not be made are taken off it.
	Forgive int32
	// Reason for people.
	Reason string
}

// Ledger writes down what was decided, before it is done.
type Ledger interface {
	// Change calls decide with what is known of a cluster by now, writes down what that
	// returns, and publishes it; it may call it more than once. An error of decide is
	// returned as it is, and nothing is written then.
	Change(ctx context.Context, key types.NamespacedName, decide func(*Cluster) ([]Change, error)) error
}

// ErrUnknown is that of a cluster which nothing was published of.
var ErrUnknown = errors.New("no KsctlAutoScaler of that name is served here")
