package target

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Error is returned while the access to a cluster cannot be determined. Its cause is a
// *reconcile.StepError with one of the reasons of this package.
type Error struct{ Err error }

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// newError returns an error that a user has to fix.
func newError(reason, format string, args ...any) error {
	return &Error{Err: reconcile.NewTerminalError(reason, format, args...)}
}

// notFoundError returns an error that a retry may end: the missing object may be created without an
// event.
func notFoundError(format string, args ...any) error {
	return &Error{Err: reconcile.NewTransientError(appsv1.ClusterNotFoundReason, format, args...)}
}

// notReadyError returns an error that an event will end.
func notReadyError(cluster types.NamespacedName, format string, args ...any) error {
	on := appsv1.WaitReference{Type: appsv1.WaitDependsOn, Kind: clusterv1.KsctlClusterKind,
		Namespace: cluster.Namespace, Name: cluster.Name}
	return &Error{Err: reconcile.NewWaitingError(appsv1.ClusterNotReadyReason, on, format, args...)}
}

// ClusterMismatchError reports that the kubeconfig leads to another cluster than the one with the
// installed objects.
type ClusterMismatchError struct {
	// Cluster is the ID of the cluster, UID the UID of the cluster that the kubeconfig leads to.
	Cluster, UID string
}

// Error implements error.
func (e *ClusterMismatchError) Error() string {
	return DisplayName(e.Cluster) + " now refers to another cluster than the one with the installed objects: nothing " +
		"is changed on it; restore the kubeconfig of the original cluster"
}

// UnreachableError reports that a cluster does not answer. Its users are notified when it does.
type UnreachableError struct {
	// Cluster is the ID of the cluster.
	Cluster string
	// Err is the error of the probe; nil while the cluster is being probed.
	Err error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	if e.Err == nil {
		return DisplayName(e.Cluster) + " is being probed"
	}
	return fmt.Sprintf("%s does not answer: %v; nothing is changed there until it does", DisplayName(e.Cluster), e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Outcome returns the reconcile outcome of an error of Resolver, and of any other step.
func Outcome(err error, revision string) reconcile.Outcome {
	var other *ClusterMismatchError
	var unreachable *UnreachableError
	switch {
	case errors.As(err, &other):
		return reconcile.Stalled{Err: err, Reason: appsv1.ClusterChangedReason, Revision: revision}
	case errors.As(err, &unreachable) && unreachable.Err == nil:
		return reconcile.Deferred{} // the result of the probe triggers a reconcile
	case errors.As(err, &unreachable):
		return reconcile.Retry{Err: err, Reason: appsv1.ClusterUnreachableReason, Revision: revision}
	}
	return reconcile.OutcomeOf(err, revision)
}
