package install

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// tracking are labels by which others know what is theirs: an install that was made for a
// cluster is not. https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
// https://fluxcd.io/flux/components/kustomize/kustomizations/#garbage-collection
var tracking = []string{"app.kubernetes.io/instance", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "app.kubernetes.io/managed-by", "argocd.argoproj.io/"}

// siteInstall is the install for one cluster, which may take in the artifact of a digest.
func siteInstall(in *appsv1.KsctlInstall, cluster, digest string) *appsv1.KsctlInstall {
	out := &appsv1.KsctlInstall{}
	out.Namespace, out.Name = in.Namespace, siteName(in.Name, cluster)
	in.Spec.DeepCopyInto(&out.Spec)
	out.Spec.ClusterSelector, out.Spec.ClusterRef, out.Spec.Suspend = nil, &appsv1.ClusterReference{Name: cluster}, false
	out.Labels = map[string]string{}
	for name, value := range in.Labels {
		if !tracks(name) {
			out.Labels[name] = value
		}
	}
	out.Labels[appsv1.FleetLabel] = fleetValue(in.Name)
	out.Annotations = map[string]string{appsv1.ReleaseAnnotation: digest}
	if at := in.Annotations[appsv1.RequestedAtAnnotation]; at != "" {
		out.Annotations[appsv1.RequestedAtAnnotation] = at
	}
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.GroupVersion.String(), Kind: Kind, Name: in.Name, UID: in.UID, Controller: ptr.To(true)}}
	return out
}

func tracks(label string) bool {
	for _, t := range tracking {
		if label == t || strings.HasSuffix(t, "/") && strings.HasPrefix(label, t) {
			return true
		}
	}
	return false
}

// siteName is the name of the install for one cluster.
func siteName(install, cluster string) string {
	name := install + "-" + cluster
	if len(name) <= 253 {
		return name
	}
	return strings.TrimRight(name[:230], ".-") + "-" + shortHash(name)
}

// fleetValue is a name that fits a label.
func fleetValue(install string) string {
	if len(install) <= 63 {
		return install
	}
	return strings.TrimRight(install[:46], ".-") + "-" + shortHash(install)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// clusterOfSite is the cluster that an install was made for, whatever somebody has made of it
// since.
func clusterOfSite(in, x *appsv1.KsctlInstall) string {
	for i := range in.Status.Clusters {
		if c := &in.Status.Clusters[i]; c.Install == x.Name || siteName(in.Name, c.Name) == x.Name {
			return c.Name
		}
	}
	if x.Spec.ClusterRef != nil && siteName(in.Name, x.Spec.ClusterRef.Name) == x.Name {
		return x.Spec.ClusterRef.Name
	}
	return strings.TrimPrefix(x.Name, in.Name+"-")
}

// isSite is true for an install that one made for a cluster.
func isSite(in, of *appsv1.KsctlInstall) bool {
	owner := metav1.GetControllerOf(in)
	return owner != nil && owner.UID == of.UID
}

// currentSite is true for an install that is as it is wanted, and may take in what it is to.
func currentSite(have, want *appsv1.KsctlInstall) bool {
	return apiequality.Semantic.DeepEqual(have.Spec, want.Spec) && have.Annotations[appsv1.ReleaseAnnotation] == want.Annotations[appsv1.ReleaseAnnotation]
}

// adjusted is an install with everything that is wanted of it. What others have put on it stays.
func adjusted(have, want *appsv1.KsctlInstall) *appsv1.KsctlInstall {
	out := have.DeepCopy()
	out.Spec = want.Spec
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	maps.Copy(out.Labels, want.Labels)
	maps.Copy(out.Annotations, want.Annotations)
	return out
}
