package install

import (
	"slices"
	"strings"
	"unicode/utf8"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/stacks"
)

func (o *owner) components(in []engine.ComponentState) []appsv1.ComponentStatus {
	states := map[string]engine.ComponentState{}
	out := make([]appsv1.ComponentStatus, 0, len(in))
	for _, c := range in {
		states[c.Name] = c
		if len(o.removals) == 0 {
			out = append(out, o.component(c))
		}
	}
	for i := range o.rendered.rendered {
		rc := &o.rendered.rendered[i]
		c, there := states[rc.Name]
		switch {
		case len(o.removals) == 0:
		case there:
			out = append(out, o.component(c))
		default:
			out = append(out, o.goneComponent(o.component(engine.ComponentState{Name: rc.Name, Version: rc.Version})))
		}
	}
	return out
}

// announced are the components that a status has, and those that were rendered: where
// it names a revision, it names all of its components, before any is sent.
func announced(has []appsv1.ComponentStatus, rendered []stacks.RenderedComponent) []appsv1.ComponentStatus {
	for i := range rendered {
		name := rendered[i].Name
		if !slices.ContainsFunc(has, func(c appsv1.ComponentStatus) bool { return c.Name == name }) {
			has = append(has, appsv1.ComponentStatus{Name: name, Version: rendered[i].Version})
		}
	}
	return has
}

func (o *owner) component(c engine.ComponentState) appsv1.ComponentStatus {
	st := appsv1.ComponentStatus{Name: c.Name, Version: c.Version, Ready: c.Ready, Objects: int32(c.Objects),
		Message: bounded(c.Message, maxComponentMessage)}
	for i := range o.rendered.rendered {
		if rc := &o.rendered.rendered[i]; rc.Name == c.Name {
			st.DependsOn = rc.DependsOn
			st.Chart, st.ChartDependencies = chartStatus(rc)
		}
	}
	return st
}

// maxComponentMessage bounds the message of a component, in bytes: a status has
// room for those of 256 components, however much a webhook has to say.
const maxComponentMessage = 1024

func bounded(s string, limit int) string {
	// What can't stay is not looked at: somebody may have megabytes to say.
	head := s[:min(len(s), limit+utf8.UTFMax)]
	valid := strings.ToValidUTF8(head, "�")
	if len(head) == len(s) && len(valid) <= limit {
		return valid
	}
	return strings.ToValidUTF8(valid[:min(len(valid), limit)], "") + "…"
}
