package settings

import (
	"errors"
	"fmt"
	"maps"
	"math"
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

// Version returns the version of Cluster Autoscaler to run: the version in the spec, or else the
// release for the cluster's version of Kubernetes, or the release nearest to it if there is none.
func Version(spec *clusterv1.KsctlAutoScalerSpec, clusterVersion string) (string, error) {
	if version := deployment(spec).Version; version != "" {
		v, err := semver.StrictNewVersion(version)
		if err != nil {
			return "", fmt.Errorf("spec.autoscaler.version %q is not a version: set a release of Cluster Autoscaler, "+
				"such as %s", version, nearestRelease(math.MaxUint64))
		}
		if v.LessThan(oldestSupported) {
			return "", fmt.Errorf("spec.autoscaler.version %s is not supported: set spec.autoscaler.version to %s or "+
				"later, or omit it", v, oldestSupported)
		}
		return v.String(), nil
	}
	if clusterVersion == "" {
		return "", errors.New("cannot select a version of Cluster Autoscaler: the cluster's version of Kubernetes is " +
			"unknown; make its KsctlCluster reachable or set spec.autoscaler.version")
	}
	v, err := semver.NewVersion(clusterVersion)
	if err != nil || v.Major() != 1 {
		return "", fmt.Errorf("no release of Cluster Autoscaler is known for Kubernetes version %q of the cluster: "+
			"set spec.autoscaler.version", clusterVersion)
	}
	return nearestRelease(v.Minor()), nil
}

// nearestRelease returns the release for the known minor version of Kubernetes that is nearest.
func nearestRelease(minor uint64) string {
	known := slices.Sorted(maps.Keys(releasesByKubernetesMinor))
	return releasesByKubernetesMinor[min(max(minor, known[0]), known[len(known)-1])]
}

// Warnings returns warnings for users: the version of Cluster Autoscaler does not match the
// cluster's version of Kubernetes, or does not support a field of the spec.
func Warnings(spec *clusterv1.KsctlAutoScalerSpec, version, clusterVersion string) []string {
	var out []string
	v, err := semver.NewVersion(version)
	if err != nil {
		return nil
	}
	if cluster, err := semver.NewVersion(clusterVersion); err == nil &&
		(cluster.Major() != v.Major() || cluster.Minor() != v.Minor()) {
		out = append(out, fmt.Sprintf("Cluster Autoscaler %s does not match Kubernetes %d.%d", version, cluster.Major(),
			cluster.Minor()))
	}
	if up := spec.ScaleUp; up != nil && up.MaxNodeStartupTime != nil && !supportsMaxNodeStartupTime(version) {
		out = append(out,
			fmt.Sprintf("spec.scaleUp.maxNodeStartupTime is ignored: Cluster Autoscaler %s always uses 15m", version))
	}
	return out
}

// supportsMaxNodeStartupTime reports whether a version has the flag --max-node-startup-time.
// https://github.com/kubernetes/autoscaler/releases/tag/cluster-autoscaler-1.35.0
func supportsMaxNodeStartupTime(version string) bool {
	v, err := semver.NewVersion(version)
	return err == nil && !v.LessThan(semver.New(1, 35, 0, "", ""))
}
