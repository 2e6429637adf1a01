package state

import "slices"

// Dialect is a form of documents, named by the first release of ksctl that writes it.
type Dialect string

// Dialects, which differ in their keys.
const (
	// V1 is written up to v1.1, and by the release that had ImportState. It has no addons.
	V1 Dialect = "v1.0"
	// V12 is written from v1.2.0 to v1.2.5. An addon has a version.
	V12 Dialect = "v1.2.0"
	// V126 is written since v1.2.6. An addon has components, each with a version.
	V126 Dialect = "v1.2.6"
	// V2 is written from v2.0.0 to v2.6. It has versions and provisioner_addons.
	V2 Dialect = "v2.0.0"
	// V27 is written since v2.7.0. It has a platform.
	V27 Dialect = "v2.7.0"
)

// dialectOf returns the dialect of a document.
func dialectOf(doc object) Dialect {
	_, platform := doc["platform"]
	_, versions := doc["versions"]
	_, provisioner := doc["provisioner_addons"]
	_, addons := doc["addons"]
	switch {
	case platform:
		return V27
	case versions, provisioner:
		return V2
	case addons:
		return dialectOfAddons(doc)
	case stringAt(doc, "cluster_type") == SelfManaged, v2Bootstraps[stringAt(doc, "bootstrap_provider")]:
		return V2
	}
	return V1
}

// v2Bootstraps are the bootstrap providers that only v2 has.
var v2Bootstraps = map[string]bool{"eks": true, "aks": true, "kind": true}

// dialectOfAddons distinguishes the two dialects with addons. If the document has no addon to look
// at, the bootstrap state decides: only the older one has the Kubernetes version there.
func dialectOfAddons(doc object) Dialect {
	apps, _ := lookup(doc, "addons", "apps").([]any)
	for _, addon := range append(slices.Clone(apps), lookup(doc, "addons", "cni")) {
		o, _ := addon.(object)
		if _, ok := o["components"]; ok {
			return V126
		}
		if _, ok := o["version"]; ok {
			return V12
		}
	}
	boot, _ := lookup(doc, "kubernetes_bootstrap_state", "b").(object)
	if _, ok := boot["k8s_version"]; ok {
		return V12
	}
	return V126
}
