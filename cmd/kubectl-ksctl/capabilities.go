package main

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/ksctl/gitops/stacks"
)

// capabilities are flags that describe the cluster that is rendered for.
type capabilities struct {
	kubeVersion string
	apiVersions []string
	only        bool
}

func (c *capabilities) addFlags(flags *pflag.FlagSet, what string) {
	flags.StringVar(&c.kubeVersion, "kube-version", "", "Kubernetes version of the target, as its API server reports it; "+what)
	flags.StringSliceVar(&c.apiVersions, "api-versions", nil, "APIs that the target serves beside those of Kubernetes: group/version or group/version/kind")
	flags.BoolVar(&c.only, "only-api-versions", false, "the target serves nothing but --api-versions")
}

// get is what the flags say; the version may be empty.
func (c *capabilities) get() stacks.Capabilities {
	all := slices.Clone(c.apiVersions)
	if !c.only {
		all = append(all, stacks.BuiltinAPIVersions()...)
	}
	slices.Sort(all)
	return stacks.Capabilities{KubeVersion: c.kubeVersion, APIVersions: slices.Compact(all)}
}
