package harness

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Suspended is nil once the controller has seen that an install is suspended: what
// a suite does from then on it leaves alone. Before that the controller may act on the
// install that it remembers. It must be the first controller of this process, which
// has the metrics.
func Suspended(in *appsv1.KsctlInstall) error {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if f.GetName() != "ksctl_resource_info" {
			continue
		}
		for _, m := range f.GetMetric() {
			is := map[string]string{}
			for _, l := range m.GetLabel() {
				is[l.GetName()] = l.GetValue()
			}
			if is["kind"] == "KsctlInstall" && is["exported_namespace"] == in.Namespace && is["name"] == in.Name && is["suspended"] == "true" {
				return nil
			}
		}
	}
	return fmt.Errorf("the controller has not seen that KsctlInstall %s/%s is suspended", in.Namespace, in.Name)
}
