package stacks

import (
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/common"
)

// DefaultKubeVersion is what is rendered for when nothing says which cluster is meant.
const DefaultKubeVersion = "v1.36.0"

// newestMinor is the newest Kubernetes that NewestKubernetes tries.
const newestMinor = 60

// BuiltinAPIVersions are the APIs of Kubernetes itself, as charts see them when no
// cluster is asked.
func BuiltinAPIVersions() []string {
	return slices.Sorted(slices.Values(common.DefaultVersionSet))
}

// NewestKubernetes is a version that the stack is for: the default, else the newest
// in its range.
func NewestKubernetes(def *Definition) string {
	constraint, err := semver.NewConstraint(def.Spec.Kubernetes)
	if err != nil {
		return DefaultKubeVersion
	}
	if v, err := semver.NewVersion(DefaultKubeVersion); err == nil && constraint.Check(v) {
		return DefaultKubeVersion
	}
	for minor := uint64(newestMinor); minor > 0; minor-- {
		if v := semver.New(1, minor, 0, "", ""); constraint.Check(v) {
			return fmt.Sprintf("v%s", v)
		}
	}
	return DefaultKubeVersion
}
