package cluster

import (
	"io"
	"net"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ksctl/gitops/e2e/tools"
)

// FateAnnotation is a pod annotation that decides how a pod ends up on a fake node. Its values are
// the Fate constants. It may be set on a pod template, and changed or removed while the pod exists.
const FateAnnotation = "e2e.ksctl.com/fate"

const (
	// FateNeverReady keeps a new pod Pending on its node, as an image pull failure does, and makes
	// a Ready pod not Ready.
	FateNeverReady = "never-ready"
	// FateFails ends a pod's containers with exit code 1. A pod with restartPolicy Never becomes
	// Failed. The containers of any other pod are in CrashLoopBackOff and the pod is not Ready.
	FateFails = "fails"
	// FateNeverEnds keeps a pod running that would end, such as that of a Job.
	FateNeverEnds = "never-ends"
)

// Options configure a cluster. The zero value is a complete control plane with one fake node.
type Options struct {
	// CRDPaths are files and folders of CustomResourceDefinitions, relative to the working
	// directory. They are installed before the controller manager starts. A missing path is an
	// error.
	CRDPaths []string

	// Nodes is the number of fake nodes, named node-0 and so on. 0 means one; a negative number
	// means none, and no kwok.
	Nodes int

	// NoControllerManager starts no kube-controller-manager: Deployments create no pods, nothing is
	// garbage collected, a deleted namespace stays, and no namespace gets its default
	// ServiceAccount, so that pods are rejected. Fake nodes need the controller manager, so there
	// are none.
	NoControllerManager bool

	// NoScheduler starts no kube-scheduler: pods stay Pending.
	NoScheduler bool

	// Audit records every request, for [Cluster.AuditSince].
	Audit bool

	// APIServerFlags are appended to the default flags of kube-apiserver ("--name=value"). The last
	// occurrence of a flag wins.
	APIServerFlags []string

	// Addresses are additional IP addresses in the API server's certificate. The API server listens
	// on them only if APIServerFlags configure that.
	Addresses []net.IP

	// Scheme is the scheme of [Cluster.Client]. Start adds the built-in kinds and
	// CustomResourceDefinition to it. Nil means a scheme of those alone.
	Scheme *runtime.Scheme

	// Progress receives one line per step of a slow build; nil means standard error.
	Progress io.Writer
}

// Tools returns the names of the programs that a cluster with these options runs.
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

// nodes returns the number of fake nodes.
func (o Options) nodes() int {
	switch {
	case o.Nodes < 0 || o.NoControllerManager:
		return 0
	case o.Nodes == 0:
		return 1
	}
	return o.Nodes
}
