package stacks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

var (
	crdPolicies  = []appsv1.CRDPolicy{appsv1.CRDsApply, appsv1.CRDsCreateOnly, appsv1.CRDsSkip}
	hookPolicies = []appsv1.HookPolicy{appsv1.HooksRun, appsv1.HooksSkip}
)

// helmSettings are how the chart of a component is installed: the settings of the stack, and those
// of the install over them. They are zero for a component that is not a chart.
type helmSettings struct {
	releaseName          string
	crds                 appsv1.CRDPolicy
	hooks                appsv1.HookPolicy
	skipSchemaValidation bool
}

// checkPolicy returns why a policy is invalid; empty for a valid one and for none.
func checkPolicy[T ~string](policy T, known []T) string {
	if policy == "" || slices.Contains(known, policy) {
		return ""
	}
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = string(k)
	}
	last := len(names) - 1
	return fmt.Sprintf("must be %s or %s, not %q", strings.Join(names[:last], ", "), names[last], policy)
}

// checkHelmPolicies checks the policies of a chart in a stack.
func (v *validator) checkHelmPolicies(h *Helm, at func(string) fieldRef) {
	if why := checkPolicy(h.CRDs, crdPolicies); why != "" {
		v.fail(at("helm.crds"), "%s", why)
	}
	if why := checkPolicy(h.Hooks, hookPolicies); why != "" {
		v.fail(at("helm.hooks"), "%s", why)
	}
}

// resolveHelmSettings returns the settings of a component, and reports those that it can't have.
// releaseName is that of the stack.
func (r *resolver) resolveHelmSettings(c *Component, choice *ComponentChoice, releaseName string) helmSettings {
	if c.Helm == nil {
		for _, field := range choice.helmFields() {
			r.add(c.Name, field, "%s is set, but this component is not a Helm chart", field)
		}
		return helmSettings{}
	}
	if choice.ReleaseName != "" && !isReleaseName(choice.ReleaseName) {
		r.add(c.Name, "releaseName", "releaseName must be a DNS name of at most %d characters, not %q", maxReleaseName,
			choice.ReleaseName)
	}
	if why := checkPolicy(choice.CRDs, crdPolicies); why != "" {
		r.add(c.Name, "crds", "crds %s", why)
	}
	if why := checkPolicy(choice.Hooks, hookPolicies); why != "" {
		r.add(c.Name, "hooks", "hooks %s", why)
	}
	out := helmSettings{
		releaseName:          cmp.Or(choice.ReleaseName, releaseName),
		crds:                 cmp.Or(choice.CRDs, c.Helm.CRDs, appsv1.CRDsApply),
		hooks:                cmp.Or(choice.Hooks, c.Helm.Hooks, appsv1.HooksRun),
		skipSchemaValidation: c.Helm.SkipSchemaValidation,
	}
	if choice.SkipSchemaValidation != nil {
		out.skipSchemaValidation = *choice.SkipSchemaValidation
	}
	return out
}

// helmFields returns the names of the fields of a choice that are set and only for charts.
func (c *ComponentChoice) helmFields() (fields []string) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"releaseName", c.ReleaseName != ""}, {"crds", c.CRDs != ""}, {"hooks", c.Hooks != ""},
		{"skipSchemaValidation", c.SkipSchemaValidation != nil},
	} {
		if f.set {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// checkReleases reports components that end in the same release: each would remove the objects of
// the other.
func (r *resolver) checkReleases() {
	first := map[Release]string{}
	for i := range r.resolved.Components {
		p := &r.resolved.Components[i]
		if p.Component.Helm == nil || p.releaseName == "" { // after an error
			continue
		}
		name, release := p.Component.Name, Release{Namespace: p.Namespace, Name: p.releaseName}
		if other, taken := first[release]; taken {
			r.add(name, "releaseName", "its release %s in namespace %s is that of component %q, too; "+
				"set another releaseName or namespace for one of the two", release.Name, release.Namespace, other)
			continue
		}
		first[release] = name
	}
}
