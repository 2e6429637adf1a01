package harness

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// CheckSuspended returns nil if the controller has observed that an install is suspended, and an
// error otherwise. After that the controller ignores changes by the suite; before, it may act on
// the cached install. CheckSuspended reads the metrics of this process, so the controller must be
// the first one in this process.
func CheckSuspended(in *appsv1.KsctlInstall) error {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if f.GetName() != "ksctl_resource_info" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["kind"] == "KsctlInstall" && labels["exported_namespace"] == in.Namespace &&
				labels["name"] == in.Name && labels["suspended"] == "true" {
				return nil
			}
		}
	}
	return fmt.Errorf("the controller has not observed that KsctlInstall %s/%s is suspended", in.Namespace, in.Name)
}
