package helm

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// Annotations of Helm hooks.
const (
	hookAnnotation   = "helm.sh/hook"
	weightAnnotation = "helm.sh/hook-weight"
	deleteAnnotation = "helm.sh/hook-delete-policy"
)

// collect parses what templates rendered, and the CRDs beside them.
func (c *Chart) collect(loaded *chart.Chart, rendered map[string]string) ([]*manifest.Object, []string, error) {
	var out []*manifest.Object
	var warnings []string
	var errs problem.Errors
	for _, crd := range loaded.CRDObjects() {
		objects, err := manifest.Parse(c.file(loaded, crd.Filename), crd.File.Data, true)
		errs = append(errs, problem.All(err)...)
		out = append(out, objects...)
	}
	names := make([]string, 0, len(rendered))
	for name, text := range rendered {
		if path.Base(name) != "NOTES.txt" && strings.TrimSpace(text) != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		objects, err := manifest.Parse(c.file(loaded, name), []byte(rendered[name]), false)
		errs = append(errs, problem.All(err)...)
		for _, o := range objects {
			keep, warning := hook(o)
			if warning != "" {
				warnings = append(warnings, warning)
			}
			if keep {
				out = append(out, o)
			}
		}
	}
	return out, warnings, errs.Err()
}

// hook reads the hook annotations of an object. Keep is false for what is no step of an install.
func hook(o *manifest.Object) (keep bool, warning string) {
	meta, _ := o.Value["metadata"].(map[string]any)
	marks, _ := meta["annotations"].(map[string]any)
	events, _ := marks[hookAnnotation].(string)
	if strings.TrimSpace(events) == "" {
		return true, ""
	}
	e := readEvents(events)
	switch {
	case e.pre && e.post:
		warning = fmt.Sprintf("%s: %s is a hook before and after (%s); it runs before only", o.File, o, events)
	case (e.pre || e.post) && e.remove && o.Kind == "Job":
		warning = fmt.Sprintf("%s: %s is a hook of installs and before deletion (%s); it does not run before deletion", o.File, o, events)
	case e.pre, e.post, e.crd:
	case e.remove && neededToRemove[o.Kind]:
	case e.remove:
		return false, fmt.Sprintf("%s: %s is left out: a hook before deletion has to be a Job here, or what a Job needs", o.File, o)
	case e.test && len(e.others) == 0:
		return false, ""
	default:
		return false, fmt.Sprintf("%s: %s is left out: the hook %s has no meaning here", o.File, o, strings.Join(e.others, ", "))
	}
	remove := e.remove && !e.pre && !e.post && o.Kind == "Job"
	if !e.pre && !e.post && !remove {
		return true, warning
	}
	weightText, _ := marks[weightAnnotation].(string)
	weight, err := strconv.Atoi(strings.TrimSpace(weightText))
	if err != nil && weightText != "" {
		warning = fmt.Sprintf("%s: %s has the hook weight %q, which is not a number; 0 is taken", o.File, o, weightText)
	}
	o.Hook = &manifest.Hook{Post: e.post && !e.pre, PreRemove: remove, Weight: weight, DeletePolicies: deletePolicies(marks)}
	return true, warning
}

// neededToRemove are the kinds of hooks before deletion that are applied with the
// rest: Jobs, which stay suspended until then, and what their pods use.
var neededToRemove = map[string]bool{"Job": true, "ServiceAccount": true, "Role": true, "RoleBinding": true,
	"ClusterRole": true, "ClusterRoleBinding": true, "ConfigMap": true, "Secret": true, "NetworkPolicy": true}

// events are those that an object is a hook of.
type events struct {
	pre, post, remove, crd, test bool
	// others have no meaning here.
	others []string
}

func readEvents(text string) (e events) {
	for event := range strings.SplitSeq(text, ",") {
		switch event = strings.ToLower(strings.TrimSpace(event)); event {
		case "pre-install", "pre-upgrade":
			e.pre = true
		case "post-install", "post-upgrade":
			e.post = true
		case "pre-delete":
			e.remove = true
		case "crd-install":
			e.crd = true
		case "test", "test-success", "test-failure":
			e.test = true
		default:
			e.others = append(e.others, event)
		}
	}
	return e
}

// deletePolicies are Helm's, with its default.
func deletePolicies(marks map[string]any) []string {
	text, _ := marks[deleteAnnotation].(string)
	var out []string
	for policy := range strings.SplitSeq(text, ",") {
		if policy = strings.ToLower(strings.TrimSpace(policy)); policy != "" {
			out = append(out, policy)
		}
	}
	if len(out) == 0 {
		return []string{"before-hook-creation"}
	}
	return out
}
