package manifest

func set(kinds ...string) map[string]bool {
	m := make(map[string]bool, len(kinds))
	for _, k := range kinds {
		m[k] = true
	}
	return m
}

// clusterScoped has every built-in group, and of each the kinds without a namespace.
// It is a table of our own because kyaml's is behind state that every build may change.
var clusterScoped = map[string]map[string]bool{
	"":                             set("Namespace", "Node", "PersistentVolume", "ComponentStatus"),
	"admissionregistration.k8s.io": set("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
	"apiextensions.k8s.io":         set("CustomResourceDefinition"),
	"apiregistration.k8s.io":       set("APIService"),
	"apps":                         nil,
	"authentication.k8s.io":        set("TokenReview", "SelfSubjectReview"),
	"authorization.k8s.io":         set("SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"),
	"autoscaling":                  nil,
	"batch":                        nil,
	"certificates.k8s.io":          set("CertificateSigningRequest", "ClusterTrustBundle"),
	"coordination.k8s.io":          nil,
	"discovery.k8s.io":             nil,
	"events.k8s.io":                nil,
	"extensions":                   set("PodSecurityPolicy"),
	"flowcontrol.apiserver.k8s.io": set("FlowSchema", "PriorityLevelConfiguration"),
	"internal.apiserver.k8s.io":    set("StorageVersion"),
	"networking.k8s.io":            set("IngressClass", "IPAddress", "ServiceCIDR"),
	"node.k8s.io":                  set("RuntimeClass"),
	"policy":                       set("PodSecurityPolicy"),
	"rbac.authorization.k8s.io":    set("ClusterRole", "ClusterRoleBinding"),
	"resource.k8s.io":              set("DeviceClass", "ResourceSlice", "DeviceTaintRule"),
	"scheduling.k8s.io":            set("PriorityClass"),
	"storage.k8s.io":               set("StorageClass", "VolumeAttachment", "CSIDriver", "CSINode", "VolumeAttributesClass"),
	"storagemigration.k8s.io":      set("StorageVersionMigration"),
}
