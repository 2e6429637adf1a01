package tools

import (
	"slices"
	"strings"
	"time"
)

// Tool is one program that can be built from a module beside this package.
type Tool struct {
	// Name is the file name of the program, and how progress and errors call it.
	Name string
	// Dir is the folder of the program's module, relative to this package.
	Dir string
	// Package is the import path of its main package.
	Package string
	// Module is the module whose required version is the program's version.
	Module string
	// LDFlags returns what the linker is told for that version (such as
	// "v1.36.3"), without "-s -w". Nil means nothing.
	LDFlags func(version string) []string
	// VersionArgs make the program print its version. Nil means that it can't, or prints
	// none when it is built as a module.
	VersionArgs []string
	// Takes is how long a build takes on two processors with an empty cache. What a
	// program shares with those before it in the table is not counted again.
	Takes time.Duration
}

// Names of the programs in the table.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kwok              = "kwok"
	// Kubelet and KubeProxy are of a node that runs pods for real.
	Kubelet   = "kubelet"
	KubeProxy = "kube-proxy"
	// KustomizeController is that of Flux, which suites run beside ours and
	// benchmarks compare with.
	KustomizeController = "kustomize-controller"
	// SourceController is that of Flux, which serves Git repositories and OCI
	// artifacts to KustomizeController and to ours.
	SourceController = "source-controller"
	// Helm installs what suites then take over or away.
	Helm = "helm"
	// ArgoCD is each of its programs; ARGOCD_BINARY_NAME in the environment says
	// which, such as argocd-repo-server.
	ArgoCD = "argocd"
)

// table lists every program that can be built; to add one, add its module's
// folder (with a tool line for the package) and a line here. Order is build
// order: what shares packages comes next to each other.
var table = []Tool{
	{Name: Etcd, Dir: "controlplane", Package: "go.etcd.io/etcd/server/v3", Module: "go.etcd.io/etcd/server/v3",
		VersionArgs: []string{"--version"}, Takes: time.Minute},
	kubernetes(APIServer, 4*time.Minute),
	kubernetes(ControllerManager, time.Minute),
	kubernetes(Scheduler, 10*time.Second),
	kubernetes(Kubectl, 30*time.Second),
	{
		Name: Kwok, Dir: "controlplane", Package: "sigs.k8s.io/kwok/cmd/kwok", Module: "sigs.k8s.io/kwok",
		LDFlags: func(version string) []string {
			return []string{"-X", "sigs.k8s.io/kwok/pkg/consts.Version=" + version}
		},
		VersionArgs: []string{"--version"}, Takes: 20 * time.Second,
	},
	{
		Name: KustomizeController, Dir: "flux",
		Package: "github.com/fluxcd/kustomize-controller", Module: "github.com/fluxcd/kustomize-controller",
		Takes: 2 * time.Minute,
	},
	{
		Name: SourceController, Dir: "source",
		Package: "github.com/fluxcd/source-controller", Module: "github.com/fluxcd/source-controller",
		Takes: 2 * time.Minute,
	},
	{Name: Helm, Dir: "helm", Package: "helm.sh/helm/v4/cmd/helm", Module: "helm.sh/helm/v4", Takes: time.Minute},
	node(Kubelet, 3*time.Minute),
	node(KubeProxy, 10*time.Second),
	{Name: ArgoCD, Dir: "argocd", Package: "github.com/argoproj/argo-cd/v3/cmd", Module: "github.com/argoproj/argo-cd/v3", Takes: 3 * time.Minute},
}

// controlPlane names the programs of a control plane.
var controlPlane = []string{Etcd, APIServer, ControllerManager, Scheduler, Kubectl, Kwok}

func kubernetes(name string, takes time.Duration) Tool {
	t := Tool{
		Name:        name,
		Dir:         "controlplane",
		Package:     "k8s.io/kubernetes/cmd/" + name,
		Module:      "k8s.io/kubernetes",
		LDFlags:     kubernetesVersion,
		VersionArgs: []string{"--version"},
		Takes:       takes,
	}
	if name == Kubectl {
		t.VersionArgs = []string{"version", "--client"}
	}
	return t
}

// node is a program of a node. They are a module of their own, so that a control
// plane that is built already stays.
func node(name string, takes time.Duration) Tool {
	t := kubernetes(name, takes)
	t.Dir = "node"
	return t
}

// kubernetesVersion stamps a version in: without one a Kubernetes program
// calls itself v0.0.0, and version-gated behaviour (feature gates, storage
// versions) is computed from that. Commit and date are constants so that the
// same recipe gives the same bytes.
func kubernetesVersion(version string) []string {
	parts := append(strings.Split(strings.TrimPrefix(version, "v"), "."), "", "")
	values := []string{
		"gitVersion=" + version,
		"gitMajor=" + parts[0],
		"gitMinor=" + parts[1],
		"gitCommit=" + strings.Repeat("0", 40),
		"gitTreeState=clean",
		"buildDate=1970-01-01T00:00:00Z",
	}
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range values {
			flags = append(flags, "-X", pkg+"."+v)
		}
	}
	return flags
}

// Default returns the names of the programs that the tests run against. What else
// there is, is built by who uses it: it costs minutes.
func Default() []string {
	return append(slices.Clone(controlPlane), KustomizeController, SourceController, Helm, ArgoCD)
}

// All returns the names of every program in the table, in build order.
func All() []string {
	names := make([]string, len(table))
	for i, t := range table {
		names[i] = t.Name
	}
	return names
}

func lookup(name string) (Tool, bool) {
	for _, t := range table {
		if t.Name == name {
			return t, true
		}
	}
	return Tool{}, false
}
