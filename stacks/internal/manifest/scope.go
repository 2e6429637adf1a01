package manifest

func kindSet(kinds ...string) map[string]bool {
	m := make(map[string]bool, len(kinds))
	for _, k := range kinds {
		m[k] = true
	}
	return m
}

// clusterScoped has all built-in groups, each with its cluster-scoped kinds. It does not use the
// table in kyaml, because that is part of global state that every kustomize build may change.
var clusterScoped = map[string]map[string]bool{
	"": kindSet("Namespace", "Node", "PersistentVolume", "ComponentStatus"),
	"admissionregistration.k8s.io": kindSet("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
		"MutatingAdmissionPolicyBinding"),
	"apiextensions.k8s.io":         kindSet("CustomResourceDefinition"),
	"apiregistration.k8s.io":       kindSet("APIService"),
	"apps":                         nil,
	"authentication.k8s.io":        kindSet("TokenReview", "SelfSubjectReview"),
	"authorization.k8s.io":         kindSet("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"),
	"autoscaling":                  nil,
	"batch":                        nil,
	"certificates.k8s.io":          kindSet("CertificateSigningRequest", "ClusterTrustBundle"),
	"coordination.k8s.io":          nil,
	"discovery.k8s.io":             nil,
	"events.k8s.io":                nil,
	"extensions":                   kindSet("PodSecurityPolicy"),
	"flowcontrol.apiserver.k8s.io": kindSet("FlowSchema", "PriorityLevelConfiguration"),
	"internal.apiserver.k8s.io":    kindSet("StorageVersion"),
	"networking.k8s.io":            kindSet("IngressClass", "IPAddress", "ServiceCIDR"),
	"node.k8s.io":                  kindSet("RuntimeClass"),
	"policy":                       kindSet("PodSecurityPolicy"),
	"rbac.authorization.k8s.io":    kindSet("ClusterRole", "ClusterRoleBinding"),
	"resource.k8s.io":              kindSet("DeviceClass", "ResourceSlice", "DeviceTaintRule"),
	"scheduling.k8s.io":            kindSet("PriorityClass"),
	"storage.k8s.io": kindSet("StorageClass", "VolumeAttachment", "CSIDriver", "CSINode",
		"VolumeAttributesClass"),
	"storagemigration.k8s.io": kindSet("StorageVersionMigration"),
}
