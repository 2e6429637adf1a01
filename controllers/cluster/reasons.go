package cluster

import (
	"errors"
	"fmt"

	"github.com/ksctl/gitops/controllers/reconcile"
)

// Reasons of a KsctlCluster's conditions.
const (
	// ImportNotFoundReason: the import that spec.importRef names does not exist.
	ImportNotFoundReason = "ImportNotFound"
	// ClusterNotImportedReason: the import has no state of the cluster.
	ClusterNotImportedReason = "ClusterNotImported"
	// KubeConfigNotFoundReason: there is no kubeconfig, neither in the state nor in a Secret.
	KubeConfigNotFoundReason = "KubeConfigNotFound"
	// KubeConfigRefusedReason: the kubeconfig would run a program, read a file, or trust anybody.
	KubeConfigRefusedReason = "KubeConfigRefused"
	// SecretTakenReason: a Secret of the name that is to be written is somebody else's.
	SecretTakenReason = "SecretTaken"
	// ArgoCDNotAllowedReason: --argocd-namespaces does not list the namespace.
	ArgoCDNotAllowedReason = "ArgoCDNamespaceNotAllowed"
	// UnreachableReason: the API server of the cluster does not answer as one.
	UnreachableReason = "Unreachable"
	// AskingReason: the API server of the cluster was not asked yet.
	AskingReason = "Asking"
	// InUseReason: somebody has objects on the cluster.
	InUseReason = "InUse"
	// AnsweredReason: the API server of the cluster has answered.
	AnsweredReason = "Answered"
)

// stepError is why a cluster can't be reached. It carries what becomes of that.
type stepError struct {
	reason string
	err    error
	// waits is true when an event will tell more, and nobody has to mend anything.
	waits bool
}

// Error implements error.
func (e *stepError) Error() string { return e.err.Error() }

// Unwrap gives the cause.
func (e *stepError) Unwrap() error { return e.err }

func fail(reason, format string, args ...any) error {
	return &stepError{reason: reason, err: fmt.Errorf(format, args...)}
}

func wait(reason, format string, args ...any) error {
	return &stepError{reason: reason, err: fmt.Errorf(format, args...), waits: true}
}

// failed is the outcome of an error.
func failed(err error) reconcile.Outcome {
	var step *stepError
	switch {
	case !errors.As(err, &step):
		return reconcile.Retry{Err: err}
	case step.waits:
		return reconcile.Waiting{On: err.Error(), Reason: step.reason}
	}
	return reconcile.Stalled{Err: err, Reason: step.reason}
}
