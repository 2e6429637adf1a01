package settings

import (
	"fmt"
	"maps"
	"slices"

	"github.com/Masterminds/semver/v3"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// releases of Cluster Autoscaler by the minor version of Kubernetes that each is for.
// https://github.com/kubernetes/autoscaler/releases
var releases = map[uint64]string{34: "1.34.5", 35: "1.35.0", 36: "1.36.1"}

// oldest release that understands what the node group server answers: those before read other
// fields of it.
var oldest = semver.New(1, 34, 2, "", "")

// VersionError says that there is no version to run.
type VersionError struct{ Message string }

// Error implements error.
func (e *VersionError) Error() string { return e.Message }

// Version of Cluster Autoscaler: that of the spec, else the one for the cluster's version of
// Kubernetes; the nearest one that is known where there is none for it. The error is a
// *VersionError.
func Version(specVersion, clusterVersion string) (string, error) {
	if specVersion != "" {
		v, err := semver.StrictNewVersion(specVersion)
		if err != nil {
			return "", &VersionError{fmt.Sprintf("spec.autoscaler.version %q is no version of Cluster Autoscaler, such as %s", specVersion, newest())}
		}
		if v.LessThan(oldest) {
			return "", &VersionError{fmt.Sprintf("Cluster Autoscaler %s does not understand what it is answered: set spec.autoscaler.version to %s or later, or leave it out", v, oldest)}
		}
		return v.String(), nil
	}
	if clusterVersion == "" {
		return "", &VersionError{"the cluster's version of Kubernetes is not known yet, by which that of Cluster Autoscaler is chosen: have its KsctlCluster be reachable, or set spec.autoscaler.version"}
	}
	v, err := semver.NewVersion(clusterVersion)
	if err != nil || v.Major() != 1 {
		return "", &VersionError{fmt.Sprintf("no Cluster Autoscaler is known for the cluster's version %q of Kubernetes: set spec.autoscaler.version", clusterVersion)}
	}
	known := slices.Sorted(maps.Keys(releases))
	return releases[min(max(v.Minor(), known[0]), known[len(known)-1])], nil
}

func newest() string {
	return releases[slices.Max(slices.Collect(maps.Keys(releases)))]
}

// Notes are what people should know of a version of Cluster Autoscaler for a cluster's version of
// Kubernetes, and of the spec.
func Notes(spec *clusterv1.KsctlAutoScalerSpec, version, clusterVersion string) []string {
	var out []string
	v, err := semver.NewVersion(version)
	if err != nil {
		return nil
	}
	if cluster, err := semver.NewVersion(clusterVersion); err == nil && (cluster.Major() != v.Major() || cluster.Minor() != v.Minor()) {
		out = append(out, fmt.Sprintf("Cluster Autoscaler %s is not the one for Kubernetes %d.%d", version, cluster.Major(), cluster.Minor()))
	}
	if up := spec.ScaleUp; up != nil && up.MaxNodeStartupTime != nil && !hasStartupTime(version) {
		out = append(out, fmt.Sprintf("spec.scaleUp.maxNodeStartupTime is left out: Cluster Autoscaler %s has 15m", version))
	}
	return out
}

// hasStartupTime is true for those whose --max-node-startup-time can be set.
// https://github.com/kubernetes/autoscaler/releases/tag/cluster-autoscaler-1.35.0
func hasStartupTime(version string) bool {
	v, err := semver.NewVersion(version)
	return err == nil && !v.LessThan(semver.New(1, 35, 0, "", ""))
}
