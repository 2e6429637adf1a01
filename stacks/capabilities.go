package stacks

import (
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/common"
)

// DefaultKubeVersion is the Kubernetes version for renders without a target cluster.
const DefaultKubeVersion = "v1.36.0"

// newestMinor is the highest minor version of Kubernetes that NewestKubernetesVersion tries.
const newestMinor = 60

// BuiltinAPIVersions returns the built-in APIs of Kubernetes, for renders without a target cluster.
func BuiltinAPIVersions() []string {
	return slices.Sorted(slices.Values(common.DefaultVersionSet))
}

// NewestKubernetesVersion returns a Kubernetes version that the stack supports: the default if it
// is in the stack's range, else the newest in the range.
func NewestKubernetesVersion(def *Definition) string {
	constraint, err := semver.NewConstraint(def.Spec.Kubernetes)
	if err != nil {
		return DefaultKubeVersion
	}
	if constraint.Check(semver.MustParse(DefaultKubeVersion)) {
		return DefaultKubeVersion
	}
	for minor := uint64(newestMinor); minor > 0; minor-- {
		if v := semver.New(1, minor, 0, "", ""); constraint.Check(v) {
			return fmt.Sprintf("v%s", v)
		}
	}
	return DefaultKubeVersion
}
