package install

import (
	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/clusters/dependency"
	"github.com/ksctl/gitops/internal/clusters/target"
	"github.com/ksctl/gitops/stacks/chart"
)

// Fields by which installs are found.
const (
	bySource   = "spec.sourceRef"
	byValues   = "what is read"
	byAccount  = "spec.serviceAccountName"
	byUnserved = "waits for a kind"
	// byDependency are the installs that depend on one, and those that depend on objects.
	byDependency = "spec.dependsOn"
	onObjects    = "objects"
	// byTakeOver are the installs that take over from one, in its namespace.
	byTakeOver = "spec.takeOver"
	// byCluster are the installs for a KsctlCluster.
	byCluster = "spec.clusterRef"
	// selecting are the installs with a clusterSelector, ofFleet those that were made for one,
	// in their namespace.
	selecting = "spec.clusterSelector"
	ofFleet   = "made for a cluster"
	// byInstallRef are the KsctlRemoves that name an install, in its namespace.
	byInstallRef = "spec.installRef of an install"
)

// fields are what installs are found by. The account is that of installs which name none.
func fields(defaultAccount string) map[string]func(*appsv1.KsctlInstall) []string {
	return map[string]func(*appsv1.KsctlInstall) []string{
		bySource: func(in *appsv1.KsctlInstall) []string {
			return []string{sourceField(in)}
		},
		byValues: whatIsRead,
		byCluster: func(in *appsv1.KsctlInstall) []string {
			if in.Spec.ClusterRef == nil {
				return nil
			}
			return []string{target.ID(in.Namespace, &in.Spec.TargetCluster)}
		},
		byAccount: func(in *appsv1.KsctlInstall) []string {
			name := in.Spec.ServiceAccountName
			if name == "" {
				name = defaultAccount
			}
			return []string{reconcile.FieldValue("ServiceAccount", in.Namespace, name)}
		},
		byDependency: dependsOn,
		byTakeOver:   takesOver,
		selecting: func(in *appsv1.KsctlInstall) []string {
			if in.Spec.ClusterSelector == nil {
				return nil
			}
			return []string{"true"}
		},
		ofFleet: func(in *appsv1.KsctlInstall) []string {
			if owner := fleetOf(in); owner != "" {
				return []string{owner}
			}
			return nil
		},
		byUnserved: func(in *appsv1.KsctlInstall) []string {
			if !isReady(in) || unpublished(in) {
				return []string{"true"}
			}
			return nil
		},
	}
}

// whatIsRead are the ConfigMaps and Secrets that an install reads.
func whatIsRead(in *appsv1.KsctlInstall) (out []string) {
	for _, v := range in.Spec.ValuesFrom {
		if v.Kind != appsv1.ClusterValues {
			out = append(out, reconcile.FieldValue(v.Kind, in.Namespace, v.Name))
		}
	}
	secrets := func(names ...string) {
		for _, name := range names {
			out = append(out, reconcile.FieldValue("Secret", in.Namespace, name))
		}
	}
	for i := range in.Spec.Charts {
		secrets(chart.SecretNames(&in.Spec.Charts[i])...)
	}
	if ref := in.Spec.KubeConfig; ref != nil {
		secrets(ref.SecretRef.Name)
	}
	if d := in.Spec.Decryption; d != nil {
		secrets(d.SecretRef.Name)
	}
	return out
}

// dependsOn are the installs that an install depends on, and whether it does on objects.
func dependsOn(in *appsv1.KsctlInstall) (out []string) {
	for _, d := range dependencyNames(in) {
		out = append(out, reconcile.FieldValue(Kind, d.Namespace, d.Name))
	}
	if len(dependency.Objects(in)) > 0 {
		out = append(out, onObjects)
	}
	return out
}

// takesOver names the install that one takes over from.
func takesOver(in *appsv1.KsctlInstall) []string {
	if t := in.Spec.TakeOver; t != nil {
		return []string{t.Name}
	}
	return nil
}
