package kind

import (
	"encoding/json"
	"slices"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// report returns the fields of an object of an install that the status reports, as the value of
// live.ReportAnnotation.
func (p *publishedKind) report(in *appsv1.KsctlInstall, ref stacks.Ref) string {
	current := p.runningFor(in).publication
	if current == nil || ref.Group == "" && ref.Kind == "Secret" {
		return ""
	}
	wanted := current.template.ObjectFields()
	paths := slices.Concat(wanted[ref.Kind], wanted[ref.Kind+"."+ref.Group])
	if len(paths) == 0 {
		return ""
	}
	raw, err := json.Marshal(paths)
	if err != nil {
		return ""
	}
	return string(raw)
}

// objects returns the fields of the objects of an install that the status reads, by kind and name.
// The name of an object in another namespace is namespace/name. Each kind is also Kind.group.
func (s *objectSteps) objects(in *appsv1.KsctlInstall) map[string]map[string]map[string]any {
	out := map[string]map[string]map[string]any{}
	for ref, raw := range s.published.installs.Reported(in) {
		var fields map[string]any
		if json.Unmarshal(raw, &fields) != nil {
			continue
		}
		name := ref.Name
		if ref.Namespace != "" && ref.Namespace != in.Namespace {
			name = ref.Namespace + "/" + ref.Name
		}
		for _, kind := range []string{ref.Kind, ref.Kind + "." + ref.Group} {
			if out[kind] == nil {
				out[kind] = map[string]map[string]any{}
			}
			out[kind][name] = fields
		}
	}
	return out
}
