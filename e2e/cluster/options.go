package cluster

import (
	"io"
	"net"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ksctl/gitops/e2e/tools"
)

// FateAnnotation on a pod (or a pod template) decides what becomes of it on a
// fake node; its values are the Fate constants. It may be changed or removed
// while the pod exists.
const FateAnnotation = "e2e.ksctl.com/fate"

const (
	// FateNeverReady keeps a new pod Pending on its node, as an image that
	// can't be pulled would, and takes the readiness of one that is Ready.
	FateNeverReady = "never-ready"
	// FateFails lets a pod's containers end with exit code 1: a pod that is
	// never restarted is Failed, another one's containers are in
	// CrashLoopBackOff and it is not Ready.
	FateFails = "fails"
	// FateNeverEnds keeps a Job's pod running.
	FateNeverEnds = "never-ends"
)

// Options say what a cluster has. The zero value is a whole control plane with
// one fake node.
type Options struct {
	// CRDPaths are files and folders with CustomResourceDefinitions to install
	// before anything else runs, relative to the working directory. A path
	// that does not exist is an error.
	CRDPaths []string

	// Nodes is the number of fake nodes, named node-0 and so on; 0 means one,
	// a negative number none (and no kwok).
	Nodes int

	// NoControllerManager leaves kube-controller-manager out: no Deployment
	// makes pods, nothing is garbage collected, a deleted namespace stays, and
	// no namespace gets a ServiceAccount of its own, so that pods are refused.
	// Fake nodes need it, so there are none either.
	NoControllerManager bool

	// NoScheduler leaves kube-scheduler out: pods stay Pending.
	NoScheduler bool

	// Audit records every request, for [Cluster.AuditSince].
	Audit bool

	// APIServerFlags are given to kube-apiserver after the rig's own, as they
	// are ("--name=value"). A flag given twice counts as given last.
	APIServerFlags []string

	// Addresses are further ones that clients reach the API server at: they go into
	// its certificate. It listens there only if APIServerFlags say so.
	Addresses []net.IP

	// Scheme is what [Cluster.Client] knows. The built-in kinds and
	// CustomResourceDefinitions are added to it. Nil means those alone.
	Scheme *runtime.Scheme

	// Progress gets a line per step of a slow build; nil means standard error.
	Progress io.Writer
}

// Tools returns the names of the programs that a cluster with these options consists of.
func (o Options) Tools() []string {
	names := []string{tools.Etcd, tools.APIServer, tools.Kubectl}
	if !o.NoControllerManager {
		names = append(names, tools.ControllerManager)
	}
	if !o.NoScheduler {
		names = append(names, tools.Scheduler)
	}
	if o.nodes() > 0 {
		names = append(names, tools.Kwok)
	}
	return names
}

// nodes returns how many fake nodes the cluster has.
func (o Options) nodes() int {
	switch {
	case o.Nodes < 0 || o.NoControllerManager:
		return 0
	case o.Nodes == 0:
		return 1
	}
	return o.Nodes
}
