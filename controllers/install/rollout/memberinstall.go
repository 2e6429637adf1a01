package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// trackingLabels are the labels by which other tools track the objects that they manage. They are
// not copied to member installs, which these tools do not manage. Entries with a trailing slash are
// prefixes. https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
// https://fluxcd.io/flux/components/kustomize/kustomizations/#garbage-collection
var trackingLabels = []string{"app.kubernetes.io/instance", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/",
	"app.kubernetes.io/managed-by", "argocd.argoproj.io/"}

// requestAnnotations request something of an install; its member installs get them, too.
var requestAnnotations = []string{appsv1.RequestedAtAnnotation, appsv1.RotateAnnotation}

// desiredMember returns the desired member install of a cluster, with an artifact released to it.
func desiredMember(in *appsv1.KsctlInstall, cluster, digest string) *appsv1.KsctlInstall {
	out := &appsv1.KsctlInstall{}
	out.Namespace, out.Name = in.Namespace, memberName(in.Name, cluster)
	in.Spec.DeepCopyInto(&out.Spec)
	out.Spec.ClusterSelector, out.Spec.ClusterRef, out.Spec.Suspend = nil, &appsv1.ClusterReference{Name: cluster},
		false
	out.Labels = labels.Merge(in.Labels, labels.Set{appsv1.FleetLabel: fleetLabelValue(in.Name)})
	maps.DeleteFunc(out.Labels, func(name, _ string) bool { return isTrackingLabel(name) })
	out.Annotations = map[string]string{appsv1.ReleaseAnnotation: digest}
	for _, name := range requestAnnotations {
		if value := in.Annotations[name]; value != "" {
			out.Annotations[name] = value
		}
	}
	out.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.GroupVersion.String(),
		Kind: appsv1.KsctlInstallKind, Name: in.Name, UID: in.UID, Controller: ptr.To(true)}}
	return out
}

func isTrackingLabel(label string) bool {
	return slices.ContainsFunc(trackingLabels, func(t string) bool {
		return label == t || strings.HasSuffix(t, "/") && strings.HasPrefix(label, t)
	})
}

// memberName returns the name of the member install of a cluster.
func memberName(install, cluster string) string {
	return shorten(install+"-"+cluster, 253, 230)
}

// fleetLabelValue returns the name of an install, shortened to the maximum length of a label value.
func fleetLabelValue(install string) string {
	return shorten(install, 63, 46)
}

// shorten replaces the end of a name that is longer than limit with a hash. kept is the length of
// the rest.
func shorten(name string, limit, kept int) string {
	if len(name) <= limit {
		return name
	}
	return strings.TrimRight(name[:kept], ".-") + "-" + shortHash(name)
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// memberCluster returns the cluster that a member install was created for, even if its spec was
// changed since.
func memberCluster(in, x *appsv1.KsctlInstall) string {
	for _, c := range in.Status.Clusters {
		if c.Install == x.Name || memberName(in.Name, c.Name) == x.Name {
			return c.Name
		}
	}
	if x.Spec.ClusterRef != nil && memberName(in.Name, x.Spec.ClusterRef.Name) == x.Name {
		return x.Spec.ClusterRef.Name
	}
	return strings.TrimPrefix(x.Name, in.Name+"-")
}

// memberUpToDate reports whether a member install has the desired spec and the desired released
// artifact.
func memberUpToDate(have, want *appsv1.KsctlInstall) bool {
	return apiequality.Semantic.DeepEqual(have.Spec, want.Spec) &&
		have.Annotations[appsv1.ReleaseAnnotation] == want.Annotations[appsv1.ReleaseAnnotation]
}

// withDesired returns a copy of a member install with the desired spec, labels and annotations.
// Other labels and annotations stay.
func withDesired(have, want *appsv1.KsctlInstall) *appsv1.KsctlInstall {
	out := have.DeepCopy()
	out.Spec = want.Spec
	out.Labels, out.Annotations = labels.Merge(have.Labels, want.Labels),
		labels.Merge(have.Annotations, want.Annotations)
	return out
}
