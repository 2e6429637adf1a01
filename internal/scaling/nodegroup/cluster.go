package nodegroup

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// Worker is a machine in the array of workers of a cluster.
type Worker struct {
	// Index is the position in the array, from 0. Only the last worker can be deleted.
	Index int32
	// Pool is the name of the worker's pool; "" if it is in no pool.
	Pool string
	// Node is the name of the worker's Node; "" if the worker has not joined. ProviderID is the
	// provider ID of the Node, which may be empty. Ready reports whether the Node is ready.
	Node, ProviderID string
	Ready            bool
	// Deleting is true while the machine is being deleted.
	Deleting bool
}

// Failure describes why machines of a pool could not be created.
type Failure struct {
	// OutOfResources is true if the cloud has no capacity for more of these machines.
	OutOfResources bool
	// Code and Message are for users. They contain no secrets.
	Code, Message string
	// Count is the number of failed machines. They are included in the pool's target.
	Count int32
	// BackoffUntil is the end of the backoff: until then no machines are created for the pool.
	BackoffUntil time.Time
}

// Group is a pool in the form that Cluster Autoscaler sees.
type Group struct {
	// ID is the node group ID in Cluster Autoscaler, Name the name of the pool.
	ID, Name string
	// Min and Max are the bounds of the number of machines, Target is the desired number.
	Min, Max, Target int32
	// Failure is the failure of the last creation of machines; nil if it succeeded or is in
	// progress.
	Failure *Failure
	// Template is the marshaled core/v1 Node that the next node would resemble. It is never empty.
	Template []byte
}

// Cluster is the published state of a cluster. It is immutable once published.
type Cluster struct {
	// Key is the namespace and name of the KsctlAutoScaler.
	Key types.NamespacedName
	// UnreadyReason is why the state of the cluster is uncertain; nil if it is certain. While it is
	// set, Refresh fails, which ends each loop of Cluster Autoscaler at its start.
	UnreadyReason error
	Mode          clusterv1.ScalingMode
	// MaxNodes is the maximum number of nodes of the cluster; 0 means no limit. OtherNodes is the
	// number of nodes that are not workers of a pool.
	MaxNodes, OtherNodes int32
	// Busy is true while machines are being created or deleted.
	Busy bool
	// Groups are in the order of the spec, Workers in the order of the array.
	Groups  []Group
	Workers []Worker
}

// Change is a change of a pool.
type Change struct {
	// Pool is the name of the pool.
	Pool string
	// Target is its new desired number of machines.
	Target int32
	// ClearFailed is the number of failed machines to remove from the pool's Failure.
	ClearFailed int32
	// Reason describes the change to users.
	Reason string
}

// ChangeRecorder persists changes before they are carried out.
type ChangeRecorder interface {
	// RecordChange calls decide with the current state of a cluster, persists the changes that
	// decide returns, and publishes the result. It may call decide more than once. It returns an
	// error of decide unchanged and persists nothing then.
	RecordChange(ctx context.Context, key types.NamespacedName, decide func(*Cluster) ([]Change, error)) error
}

// ErrUnknownCluster means that no state was published for a cluster.
var ErrUnknownCluster = errors.New("the KsctlAutoScaler is not served by this controller")
