package manifest

import (
	"cmp"
	"slices"
)

// Phases of one component, in apply order.
const (
	phaseNamespace = iota
	phaseCRD
	phasePreHook
	phaseRest
	phaseAdmission
	phasePostHook
)

// installOrder is Helm's install order of kinds. Other kinds come last.
var installOrder = rank(
	"PriorityClass", "NetworkPolicy", "ResourceQuota", "LimitRange", "PodSecurityPolicy", "PodDisruptionBudget",
	"ServiceAccount", "Secret", "ConfigMap", "StorageClass", "PersistentVolume", "PersistentVolumeClaim",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service", "DaemonSet", "Pod",
	"ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler", "StatefulSet", "Job", "CronJob",
	"IngressClass", "Ingress",
)

func rank(kinds ...string) map[string]int {
	m := make(map[string]int, len(kinds))
	for i, k := range kinds {
		m[k] = i
	}
	return m
}

// Sort sorts the objects of a component in apply order.
func Sort(objects []*Object) {
	slices.SortStableFunc(objects, func(a, b *Object) int {
		pa, pb := phase(a), phase(b)
		c := cmp.Compare(pa, pb)
		if c == 0 && (pa == phasePreHook || pa == phasePostHook) {
			c = cmp.Compare(a.Hook.Weight, b.Hook.Weight)
		}
		return cmp.Or(c,
			cmp.Compare(kindRank(a), kindRank(b)),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func phase(o *Object) int {
	switch {
	case o.Hook != nil && (o.Hook.PreRemove || o.Hook.Inactive):
		return phaseRest
	case o.Hook != nil && o.Hook.Post:
		return phasePostHook
	case o.Hook != nil:
		return phasePreHook
	case o.Group == "" && o.Kind == "Namespace":
		return phaseNamespace
	case isDefinition(o):
		return phaseCRD
	case o.Group == "apiregistration.k8s.io", o.Group == "admissionregistration.k8s.io":
		return phaseAdmission
	}
	return phaseRest
}

func kindRank(o *Object) int {
	if _, builtin := clusterScoped[o.Group]; builtin {
		if r, ok := installOrder[o.Kind]; ok {
			return r
		}
	}
	return len(installOrder)
}
