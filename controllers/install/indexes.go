package install

import (
	"cmp"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks/chart"
)

// Names of the field indexes.
const (
	sourceIndex            = ".spec.sourceRef"
	referencedConfigsIndex = ".spec.referencedConfigs"
	serviceAccountIndex    = ".spec.serviceAccountName"
	waitingForKindIndex    = ".status.waitingForKind"
	// dependsOnIndex finds the installs that depend on an install. Its value dependsOnObjects finds
	// the installs that depend on other objects.
	dependsOnIndex   = ".spec.dependsOn"
	dependsOnObjects = "objects"
	// waitsForIndex finds the installs that wait for an install.
	waitsForIndex = ".status.waitsFor"
	// takeOverIndex finds the installs that take over from an install of the same namespace.
	takeOverIndex = ".spec.takeOver"
	// clusterRefIndex finds the installs with a KsctlCluster as target.
	clusterRefIndex = ".spec.clusterRef"
	// clusterSelectorIndex finds the installs with a clusterSelector. fleetIndex finds the member
	// installs of such an install, in the same namespace.
	clusterSelectorIndex = ".spec.clusterSelector"
	FleetIndex           = ".metadata.fleet"
	// removeInstallIndex finds the KsctlRemoves of an install, in the same namespace.
	removeInstallIndex = ".spec.installRef.name"
)

// installIndexes returns the index functions of KsctlInstall. defaultAccount is the service account
// of installs without spec.serviceAccountName.
func installIndexes(defaultAccount string) map[string]func(*appsv1.KsctlInstall) []string {
	return map[string]func(*appsv1.KsctlInstall) []string{
		sourceIndex: func(in *appsv1.KsctlInstall) []string {
			return []string{handover.SourceKey(in)}
		},
		referencedConfigsIndex: referencedConfigs,
		clusterRefIndex: func(in *appsv1.KsctlInstall) []string {
			if in.Spec.ClusterRef == nil {
				return nil
			}
			return []string{target.ID(in.Namespace, &in.Spec.TargetCluster)}
		},
		serviceAccountIndex: func(in *appsv1.KsctlInstall) []string {
			return []string{reconcile.IndexValue("ServiceAccount", in.Namespace,
				cmp.Or(in.Spec.ServiceAccountName, defaultAccount))}
		},
		dependsOnIndex: dependsOnValues,
		takeOverIndex:  takeOverKeys,
		waitsForIndex:  waitsForValues,
		clusterSelectorIndex: func(in *appsv1.KsctlInstall) []string {
			if in.Spec.ClusterSelector == nil {
				return nil
			}
			return []string{"true"}
		},
		FleetIndex: func(in *appsv1.KsctlInstall) []string {
			if owner := handover.FleetName(in); owner != "" {
				return []string{owner}
			}
			return nil
		},
		waitingForKindIndex: func(in *appsv1.KsctlInstall) []string {
			if !handover.IsReady(in) || publishFailed(in) {
				return []string{"true"}
			}
			return nil
		},
	}
}

// referencedConfigs returns the ConfigMaps and Secrets that an install reads.
func referencedConfigs(in *appsv1.KsctlInstall) (out []string) {
	for _, v := range in.Spec.ValuesFrom {
		if v.Kind != appsv1.ClusterValues {
			out = append(out, reconcile.IndexValue(v.Kind, in.Namespace, v.Name))
		}
	}
	for _, p := range in.Spec.ParametersFrom {
		out = append(out, reconcile.IndexValue(p.Kind, in.Namespace, p.Name))
	}
	addSecrets := func(names ...string) {
		for _, name := range names {
			out = append(out, reconcile.IndexValue("Secret", in.Namespace, name))
		}
	}
	for i := range in.Spec.Charts {
		addSecrets(chart.SecretNames(&in.Spec.Charts[i])...)
	}
	if ref := in.Spec.KubeConfig; ref != nil {
		addSecrets(ref.SecretRef.Name)
	}
	if d := in.Spec.Decryption; d != nil {
		addSecrets(d.SecretRef.Name)
	}
	return out
}

// dependsOnValues returns the installs that an install depends on, and dependsOnObjects if it
// depends on other objects, too.
func dependsOnValues(in *appsv1.KsctlInstall) (out []string) {
	for _, d := range dependency.Installs(in) {
		out = append(out, reconcile.IndexValue(appsv1.KsctlInstallKind, d.Namespace, d.Name))
	}
	if len(dependency.ObjectRefs(in)) > 0 {
		out = append(out, dependsOnObjects)
	}
	return out
}

// takeOverKeys returns the name of the install that an install takes over from.
func takeOverKeys(in *appsv1.KsctlInstall) []string {
	if t := in.Spec.TakeOver; t != nil {
		return []string{t.Name}
	}
	return nil
}
