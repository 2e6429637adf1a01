package target

import (
	"errors"
	"fmt"

	"github.com/ksctl/gitops/controllers/account"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Reasons of conditions.
const (
	// ClusterNotFoundReason: the KsctlCluster, or the Secret with the kubeconfig, does not exist.
	ClusterNotFoundReason = "ClusterNotFound"
	// ClusterNotReadyReason: the KsctlCluster has no kubeconfig yet, or is being deleted.
	ClusterNotReadyReason = "ClusterNotReady"
	// ClusterChangedReason: the spec names another cluster than that which has what is installed.
	ClusterChangedReason = "ClusterChanged"
	// ClusterUnreachableReason: the API server of the cluster does not answer.
	ClusterUnreachableReason = "ClusterUnreachable"
	// KubeConfigRefusedReason: the kubeconfig would run a program, read a file, or trust anybody.
	KubeConfigRefusedReason = "KubeConfigRefused"
	// AccessDeniedReason: the cluster is in another namespace, and that is not allowed.
	AccessDeniedReason = "AccessDenied"
)

// Error says why it is not known how a cluster is reached.
type Error struct {
	// Reason is one of the reasons of this package.
	Reason string
	// Waits is true when an event will tell more, and nobody has to mend anything; Again when
	// it may be mended without an event.
	Waits, Again bool
	err          error
}

// Error implements error.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.err }

func fail(reason, format string, args ...any) error {
	return &Error{Reason: reason, err: fmt.Errorf(format, args...)}
}

// missing is what may come without an event.
func missing(format string, args ...any) error {
	return &Error{Reason: ClusterNotFoundReason, Again: true, err: fmt.Errorf(format, args...)}
}

// notReady is what an event will end.
func notReady(format string, args ...any) error {
	return &Error{Reason: ClusterNotReadyReason, Waits: true, err: fmt.Errorf(format, args...)}
}

// OtherClusterError says that a cluster is reached in the place of another one, which has what
// is installed.
type OtherClusterError struct {
	// Cluster is the id, UID that of the cluster that is reached.
	Cluster, UID string
}

// Error implements error.
func (e *OtherClusterError) Error() string {
	return People(e.Cluster) + " leads to another cluster than the one that has what is installed: nothing is changed on it. Make it lead there again"
}

// UnreachableError says that a cluster does not answer. Whoever uses the cluster is woken when
// it does.
type UnreachableError struct {
	// Cluster is its id.
	Cluster string
	// Err is what it says instead; nil while it is being asked.
	Err error
}

// Error implements error.
func (e *UnreachableError) Error() string {
	if e.Err == nil {
		return People(e.Cluster) + " is being asked whether it answers"
	}
	return fmt.Sprintf("%s does not answer: %v; nothing is changed there until it does", People(e.Cluster), e.Err)
}

// Unwrap gives the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// Outcome of an error of Targets, or of account.Client.
func Outcome(err error, revision string) reconcile.Outcome {
	var known *Error
	var (
		other       *OtherClusterError
		unreachable *UnreachableError
		noAccount   *account.NotFoundError
	)
	switch {
	case errors.Is(err, account.ErrNone) || errors.As(err, &noAccount):
		return account.Outcome(err, revision)
	case errors.As(err, &other):
		return reconcile.Stalled{Err: err, Reason: ClusterChangedReason, Revision: revision}
	case errors.As(err, &unreachable) && unreachable.Err == nil:
		return reconcile.Deferred{} // the answer wakes it
	case errors.As(err, &unreachable):
		return reconcile.Retry{Err: err, Reason: ClusterUnreachableReason, Revision: revision}
	case errors.As(err, &known) && known.Again:
		return reconcile.Retry{Err: err, Reason: known.Reason, Revision: revision}
	case errors.As(err, &known) && known.Waits:
		return reconcile.Waiting{On: err.Error(), Reason: known.Reason, Revision: revision}
	case errors.As(err, &known):
		return reconcile.Stalled{Err: err, Reason: known.Reason, Revision: revision}
	}
	return reconcile.Retry{Err: err, Revision: revision}
}
