package helm

import (
	"fmt"
	"maps"
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
	hookAnnotation   = manifest.HookAnnotation
	weightAnnotation = "helm.sh/hook-weight"
	deleteAnnotation = "helm.sh/hook-delete-policy"
)

// collectObjects parses the chart's CRDs and the output of its templates.
func (c *Chart) collectObjects(loaded *chart.Chart, rendered map[string]string,
	o Options) ([]*manifest.Object, []string, error) {
	var out []*manifest.Object
	var warnings []string
	var errs problem.Errors
	var crds []chart.CRD
	if !o.WithoutCRDs {
		crds = loaded.CRDObjects()
	}
	for _, crd := range crds {
		objects, err := c.parseCRDs(crd.File, c.templateFile(loaded, crd.Filename))
		errs.Add(err)
		for _, object := range objects {
			object.CreateOnly = o.CreateOnlyCRDs
		}
		out = append(out, objects...)
	}
	read := o.hookReader()
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if path.Base(name) == "NOTES.txt" || strings.TrimSpace(rendered[name]) == "" {
			continue
		}
		objects, repeated, err := manifest.ParseRendered(c.templateFile(loaded, name), rendered[name])
		errs.Add(err)
		warnings = append(warnings, repeated...)
		for _, object := range objects {
			keep, warning := read(object, o.isUpgrade())
			if warning != "" {
				warnings = append(warnings, warning)
			}
			if keep {
				out = append(out, object)
			}
		}
	}
	return out, warnings, errs.Err()
}

// hookReader returns the function that decides about objects that may be hooks.
func (o *Options) hookReader() func(object *manifest.Object, upgrade bool) (keep bool, warning string) {
	switch {
	case o.WithoutHooks:
		return skipHook
	case o.SkipHooks:
		return dropHook
	}
	return readHook
}

// readHook sets o.Hook from the annotations of an object, for an upgrade or an install. keep is
// false for hooks that are not part of them or of a removal.
func readHook(o *manifest.Object, upgrade bool) (keep bool, warning string) {
	marks, events := hookOf(o)
	if events == "" {
		return true, ""
	}
	e := parseHookEvents(events)
	installs := e.preInstall || e.postInstall || e.preUpgrade || e.postUpgrade
	if !installs && !e.preDelete && !e.postDelete && !e.crd && !e.test {
		return false, fmt.Sprintf("%s: %s is skipped: the hook %s is not supported", o.File, o,
			strings.Join(e.others, ", "))
	}
	pre, post := e.preInstall, e.postInstall
	if upgrade {
		pre, post = e.preUpgrade, e.postUpgrade
	}
	if pre && post && manifest.Runs(o) {
		warning = fmt.Sprintf("%s: %s is both a pre hook and a post hook (%s); it runs only as a pre hook", o.File, o,
			events)
	}
	if !installs && e.crd {
		return true, warning
	}
	weightText, _ := marks[weightAnnotation].(string)
	weight, err := strconv.Atoi(strings.TrimSpace(weightText))
	if err != nil && weightText != "" {
		warning = fmt.Sprintf("%s: %s has the hook weight %q, which is not a number; 0 is used", o.File, o, weightText)
	}
	o.Hook = &manifest.Hook{Post: post && !pre, AlsoPost: pre && post, Inactive: installs && !pre && !post,
		PreDelete: e.preDelete, PostDelete: e.postDelete, Test: e.test,
		NotApplied: !installs, Weight: weight, DeletePolicies: deletePolicies(marks)}
	return true, warning
}

// skipHook returns false for a hook, with a warning unless it is only a test.
func skipHook(o *manifest.Object, _ bool) (keep bool, warning string) {
	_, events := hookOf(o)
	switch e := parseHookEvents(events); {
	case events == "":
		return true, ""
	case e.preInstall || e.postInstall || e.preUpgrade || e.postUpgrade || e.preDelete || e.postDelete || e.crd ||
		len(e.others) > 0:
		return false, fmt.Sprintf("%s: %s is skipped: it is a hook (%s)", o.File, o, events)
	}
	return false, ""
}

// dropHook returns false for a hook. What readHook keeps as an ordinary object stays one.
func dropHook(o *manifest.Object, upgrade bool) (keep bool, warning string) {
	keep, _ = readHook(o, upgrade)
	return keep && o.Hook == nil, ""
}

// hookOf returns the annotations of an object, and its hook events. They are empty if it is not a
// hook.
func hookOf(o *manifest.Object) (marks map[string]any, events string) {
	meta, _ := o.Value["metadata"].(map[string]any)
	marks, _ = meta["annotations"].(map[string]any)
	events, _ = marks[hookAnnotation].(string)
	return marks, strings.TrimSpace(events)
}

// hookEvents are the events of a hook.
type hookEvents struct {
	preInstall, postInstall, preUpgrade, postUpgrade, preDelete, postDelete, crd, test bool
	// others are not supported.
	others []string
}

func parseHookEvents(text string) (e hookEvents) {
	for event := range strings.SplitSeq(text, ",") {
		switch event = strings.ToLower(strings.TrimSpace(event)); event {
		case "pre-install":
			e.preInstall = true
		case "post-install":
			e.postInstall = true
		case "pre-upgrade":
			e.preUpgrade = true
		case "post-upgrade":
			e.postUpgrade = true
		case "pre-delete":
			e.preDelete = true
		case "post-delete":
			e.postDelete = true
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

// deletePolicies returns the hook's delete policies, with Helm's default.
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
