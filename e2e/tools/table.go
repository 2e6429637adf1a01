package tools

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tool is a program that can be built from a module in a subfolder of this package.
type Tool struct {
	// Name is the file name of the program, also used in progress lines and errors.
	Name string
	// Dir is the folder of the program's module, relative to this package's folder.
	Dir string
	// Package is the import path of its main package.
	Package string
	// Module is the module whose required version is the program's version.
	Module string
	// LDFlags returns the linker flags for a version (such as "v1.36.3"), without "-s -w". Nil
	// means none.
	LDFlags func(version string) []string
	// VersionArgs are arguments that make the program print its version. Nil means that it can't,
	// or prints no version if it is built as a module.
	VersionArgs []string
	// BuildTime is the estimated build time on two processors with an empty cache. It excludes
	// packages that the program shares with programs before it in the table.
	BuildTime time.Duration
}

// Names of the programs in the table.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubectl           = "kubectl"
	Kwok              = "kwok"
	// Kubelet and KubeProxy run on a node with real pods.
	Kubelet   = "kubelet"
	KubeProxy = "kube-proxy"
	// KustomizeController is Flux' kustomize-controller. Suites run it together with our
	// controller, and benchmarks compare the two.
	KustomizeController = "kustomize-controller"
	// SourceController is Flux' source-controller. It serves Git repositories and OCI artifacts to
	// KustomizeController and to our controller.
	SourceController = "source-controller"
	// Helm installs releases that suites then adopt or remove.
	Helm = "helm"
	// ArgoCD contains all programs of Argo CD. The environment variable ARGOCD_BINARY_NAME selects
	// one, such as argocd-repo-server.
	ArgoCD = "argocd"
)

// table lists every program that can be built, in build order. Programs that share packages are
// adjacent. To add a program, add its module's folder (with a tool line for the package) and a line
// here.
var table = []Tool{
	{Name: Etcd, Dir: "controlplane", Package: "go.etcd.io/etcd/server/v3", Module: "go.etcd.io/etcd/server/v3",
		VersionArgs: []string{"--version"}, BuildTime: time.Minute},
	kubernetes(APIServer, 4*time.Minute),
	kubernetes(ControllerManager, time.Minute),
	kubernetes(Scheduler, 10*time.Second),
	kubernetes(Kubectl, 30*time.Second),
	{
		Name: Kwok, Dir: "controlplane", Package: "sigs.k8s.io/kwok/cmd/kwok", Module: "sigs.k8s.io/kwok",
		LDFlags: func(version string) []string {
			return []string{"-X", "sigs.k8s.io/kwok/pkg/consts.Version=" + version}
		},
		VersionArgs: []string{"--version"}, BuildTime: 20 * time.Second,
	},
	{
		Name: KustomizeController, Dir: "flux",
		Package: "github.com/fluxcd/kustomize-controller", Module: "github.com/fluxcd/kustomize-controller",
		BuildTime: 2 * time.Minute,
	},
	{
		Name: SourceController, Dir: "source",
		Package: "github.com/fluxcd/source-controller", Module: "github.com/fluxcd/source-controller",
		BuildTime: 2 * time.Minute,
	},
	{Name: Helm, Dir: "helm", Package: "helm.sh/helm/v4/cmd/helm", Module: "helm.sh/helm/v4", BuildTime: time.Minute},
	node(Kubelet, 3*time.Minute),
	node(KubeProxy, 10*time.Second),
	{Name: ArgoCD, Dir: "argocd", Package: "github.com/argoproj/argo-cd/v3/cmd",
		Module: "github.com/argoproj/argo-cd/v3", BuildTime: 3 * time.Minute},
}

// controlPlane has the names of the control plane's programs.
var controlPlane = []string{Etcd, APIServer, ControllerManager, Scheduler, Kubectl, Kwok}

func kubernetes(name string, buildTime time.Duration) Tool {
	t := Tool{
		Name:        name,
		Dir:         "controlplane",
		Package:     "k8s.io/kubernetes/cmd/" + name,
		Module:      "k8s.io/kubernetes",
		LDFlags:     kubernetesVersion,
		VersionArgs: []string{"--version"},
		BuildTime:   buildTime,
	}
	if name == Kubectl {
		t.VersionArgs = []string{"version", "--client"}
	}
	return t
}

// node returns a program of a node. These programs have a separate module, so that a change there
// does not rebuild the control plane.
func node(name string, buildTime time.Duration) Tool {
	t := kubernetes(name, buildTime)
	t.Dir = "node"
	return t
}

// kubernetesVersion returns linker flags that set the version of a Kubernetes program. Without them
// the program has version v0.0.0 and computes version-gated behavior (feature gates, storage
// versions) from that. Commit and date are constants, so that the same recipe gives the same bytes.
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

// Default returns the names of the programs that the tests need. The other programs take minutes to
// build, so only the suites that use them build them.
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

func lookup(name string) (Tool, error) {
	for _, t := range table {
		if t.Name == name {
			return t, nil
		}
	}
	return Tool{}, fmt.Errorf("unknown tool %q; known tools: %s", name, strings.Join(All(), ", "))
}
