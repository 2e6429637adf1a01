package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/stacks"
)

// capabilities are the flags that describe the target cluster of a render.
type capabilities struct {
	kubeVersion string
	apiVersions []string
	only        bool
}

func (c *capabilities) addFlags(flags *pflag.FlagSet, versionDefault string) {
	flags.StringVar(&c.kubeVersion, "kube-version", "",
		"Kubernetes version of the target, as its API server reports it; "+versionDefault)
	flags.StringSliceVar(&c.apiVersions, "api-versions", nil,
		"APIs that the target serves in addition to those of Kubernetes: group/version or group/version/kind")
	flags.BoolVar(&c.only, "only-api-versions", false, "the target serves only the APIs in --api-versions")
}

// build returns the capabilities that the flags describe. The version may be empty.
func (c *capabilities) build() stacks.Capabilities {
	all := slices.Clone(c.apiVersions)
	if !c.only {
		all = append(all, stacks.BuiltinAPIVersions()...)
	}
	slices.Sort(all)
	return stacks.Capabilities{KubeVersion: c.kubeVersion, APIVersions: slices.Compact(all)}
}
