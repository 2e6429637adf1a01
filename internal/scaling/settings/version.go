package settings

import (
	"fmt"
	"maps"
	"slices"

	"github.com/Masterminds/semver/v3"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// releasesByKubernetesMinor maps a minor version of Kubernetes to its release of Cluster
// Autoscaler.
// https://github.com/kubernetes/autoscaler/releases
var releasesByKubernetesMinor = map[uint64]string{34: "1.34.5", 35: "1.35.0", 36: "1.36.1"}

// oldestSupported is the oldest release that understands the responses of the node group server:
// earlier releases read other fields of them.
var oldestSupported = semver.New(1, 34, 2, "", "")

// VersionError reports that no version of Cluster Autoscaler can be selected.
type VersionError struct{ Message string }

// Error implements error.
func (e *VersionError) Error() string { return e.Message }

// Version returns the version of Cluster Autoscaler to run: the version in the spec, or else the
// release for the cluster's version of Kubernetes, or the release nearest to it if there is none.
// The error is a *VersionError.
func Version(specVersion, clusterVersion string) (string, error) {
	if specVersion != "" {
		v, err := semver.StrictNewVersion(specVersion)
		if err != nil {
			return "", &VersionError{fmt.Sprintf("spec.autoscaler.version %q is not a version: set a release of Cluster Autoscaler, such as %s", specVersion, newestRelease())}
		}
		if v.LessThan(oldestSupported) {
			return "", &VersionError{fmt.Sprintf("spec.autoscaler.version %s is not supported: set spec.autoscaler.version to %s or later, or omit it", v, oldestSupported)}
		}
		return v.String(), nil
	}
	if clusterVersion == "" {
		return "", &VersionError{"cannot select a version of Cluster Autoscaler: the cluster's version of Kubernetes is unknown; make its KsctlCluster reachable or set spec.autoscaler.version"}
	}
	v, err := semver.NewVersion(clusterVersion)
	if err != nil || v.Major() != 1 {
		return "", &VersionError{fmt.Sprintf("no release of Cluster Autoscaler is known for Kubernetes version %q of the cluster: set spec.autoscaler.version", clusterVersion)}
	}
	known := slices.Sorted(maps.Keys(releasesByKubernetesMinor))
	return releasesByKubernetesMinor[min(max(v.Minor(), known[0]), known[len(known)-1])], nil
}

func newestRelease() string {
	return releasesByKubernetesMinor[slices.Max(slices.Collect(maps.Keys(releasesByKubernetesMinor)))]
}

// Warnings returns warnings for users: the version of Cluster Autoscaler does not match the
// cluster's version of Kubernetes, or does not support a field of the spec.
func Warnings(spec *clusterv1.KsctlAutoScalerSpec, version, clusterVersion string) []string {
	var out []string
	v, err := semver.NewVersion(version)
	if err != nil {
		return nil
	}
	if cluster, err := semver.NewVersion(clusterVersion); err == nil && (cluster.Major() != v.Major() || cluster.Minor() != v.Minor()) {
		out = append(out, fmt.Sprintf("Cluster Autoscaler %s does not match Kubernetes %d.%d", version, cluster.Major(), cluster.Minor()))
	}
	if up := spec.ScaleUp; up != nil && up.MaxNodeStartupTime != nil && !supportsMaxNodeStartupTime(version) {
		out = append(out, fmt.Sprintf("spec.scaleUp.maxNodeStartupTime is ignored: Cluster Autoscaler %s always uses 15m", version))
	}
	return out
}

// supportsMaxNodeStartupTime reports whether a version has the flag --max-node-startup-time.
// https://github.com/kubernetes/autoscaler/releases/tag/cluster-autoscaler-1.35.0
func supportsMaxNodeStartupTime(version string) bool {
	v, err := semver.NewVersion(version)
	return err == nil && !v.LessThan(semver.New(1, 35, 0, "", ""))
}
