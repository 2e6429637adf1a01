package state

import "slices"

// Dialect is the first release of ksctl that writes documents of a form.
type Dialect string

// Dialects, told apart by their keys.
const (
	// V1 is written up to v1.1, and by the release that had ImportState: there are no addons.
	V1 Dialect = "v1.0"
	// V12 is written from v1.2.0 to v1.2.5: an addon has a version.
	V12 Dialect = "v1.2.0"
	// V126 is written from v1.2.6 on: an addon has components, each with a version.
	V126 Dialect = "v1.2.6"
	// V2 is written from v2.0.0 to v2.6: versions and provisioner_addons.
	V2 Dialect = "v2.0.0"
	// V27 is written from v2.7.0 on: there is a platform.
	V27 Dialect = "v2.7.0"
)

// dialectOf tells which release wrote a document.
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
	case text(doc, "cluster_type") == SelfManaged, ofV2[text(doc, "bootstrap_provider")]:
		return V2
	}
	return V1
}

// ofV2 are the bootstrap providers that only the second release knows.
var ofV2 = map[string]bool{"eks": true, "aks": true, "kind": true}

// dialectOfAddons tells two releases apart that both have addons. Where there are
// none to look at, the versions beside them tell: the older writes one for the cluster.
func dialectOfAddons(doc object) Dialect {
	apps, _ := at(doc, "addons", "apps").([]any)
	for _, addon := range append(slices.Clone(apps), at(doc, "addons", "cni")) {
		o, _ := addon.(object)
		if _, ok := o["components"]; ok {
			return V126
		}
		if _, ok := o["version"]; ok {
			return V12
		}
	}
	boot, _ := at(doc, "kubernetes_bootstrap_state", "b").(object)
	if _, ok := boot["k8s_version"]; ok {
		return V12
	}
	return V126
}
