package stacks

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/kustomize"
	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// maxNamePart is the maximum length of a prefix or a suffix: most names may have 253 characters.
const maxNamePart = 200

var (
	prefixPattern = regexp.MustCompile(`^[a-z0-9][-a-z0-9.]*$`)
	suffixPattern = regexp.MustCompile(`^[-a-z0-9.]*[a-z0-9]$`)
)

func prefixRule(text string) string {
	if text == "" || prefixPattern.MatchString(text) && len(text) <= maxNamePart {
		return ""
	}
	return fmt.Sprintf("must begin names with at most %d lower case letters, digits, dashes and dots, not with %q",
		maxNamePart, text)
}

func suffixRule(text string) string {
	if text == "" || suffixPattern.MatchString(text) && len(text) <= maxNamePart {
		return ""
	}
	return fmt.Sprintf("must end names with at most %d lower case letters, digits, dashes and dots, not with %q",
		maxNamePart, text)
}

// invalid returns why labels or annotations are invalid; empty if they are not.
func (m *CommonMetadata) invalid() string {
	if m == nil {
		return ""
	}
	errs := append(metav1validation.ValidateLabels(m.Labels, field.NewPath("labels")),
		apivalidation.ValidateAnnotations(m.Annotations, field.NewPath("annotations"))...)
	if len(errs) == 0 {
		return ""
	}
	return errs[0].Error()
}

// checkMetadata checks the labels and annotations of an object after a field was set.
func checkMetadata(o *manifest.Object) error {
	metadata, _ := o.Value["metadata"].(map[string]any)
	texts := map[string]map[string]string{}
	for _, name := range []string{"labels", "annotations"} {
		all, isMap := metadata[name].(map[string]any)
		if !isMap && metadata[name] != nil {
			return fmt.Errorf("metadata.%s must be an object whose values are strings", name)
		}
		texts[name] = map[string]string{}
		for _, key := range slices.Sorted(maps.Keys(all)) {
			text, isText := all[key].(string)
			if !isText && all[key] != nil {
				return fmt.Errorf("metadata.%s: the value of %q must be a string: use string(…)", name, key)
			}
			texts[name][key] = text
		}
	}
	if why := (&CommonMetadata{Labels: texts["labels"], Annotations: texts["annotations"]}).invalid(); why != "" {
		return fmt.Errorf("metadata.%s", why)
	}
	return nil
}

// checkMetadata checks the metadata and the names that a stack gives its objects.
func (x *expressions) checkMetadata() {
	c := x.component
	if why := c.CommonMetadata.invalid(); why != "" {
		x.v.fail(x.at("commonMetadata"), "is invalid: %s", why)
	}
	x.checkText(x.at("namePrefix"), &c.NamePrefix, prefixRule)
	x.checkText(x.at("nameSuffix"), &c.NameSuffix, suffixRule)
}

// resolveMetadata sets the metadata and the names that the objects of a component get.
func (r *resolver) resolveMetadata(index int, p *ResolvedComponent, choice *ComponentChoice, vars expr.Variables) {
	c := p.Component
	at := func(field string) fieldRef { return r.def.componentField(index, field) }
	for _, own := range []struct {
		metadata *CommonMetadata
		field    string
	}{{r.choices.CommonMetadata, "spec.commonMetadata"}, {choice.CommonMetadata, "commonMetadata"}} {
		if why := own.metadata.invalid(); why != "" {
			r.add(c.Name, own.field, "%s of the install is invalid: %s", own.field, why)
		}
	}
	for _, m := range []*CommonMetadata{r.def.Spec.CommonMetadata, c.CommonMetadata, r.choices.CommonMetadata,
		choice.CommonMetadata} {
		if m != nil {
			p.metadata.Labels = merged(p.metadata.Labels, m.Labels)
			p.metadata.Annotations = merged(p.metadata.Annotations, m.Annotations)
		}
	}
	for field, why := range map[string]string{"namePrefix": prefixRule(choice.NamePrefix),
		"nameSuffix": suffixRule(choice.NameSuffix)} {
		if why != "" {
			r.add(c.Name, field, "%s of the install %s", field, why)
		}
	}
	p.namePrefix = cmp.Or(choice.NamePrefix, r.text(at("namePrefix"), &c.NamePrefix, vars, prefixRule))
	p.nameSuffix = cmp.Or(choice.NameSuffix, r.text(at("nameSuffix"), &c.NameSuffix, vars, suffixRule))
	if p.kustomizeComponents = choice.KustomizeComponents; len(p.kustomizeComponents) > 0 && c.Kustomize == nil {
		r.add(c.Name, "kustomizeComponents", "kustomizeComponents is for kustomizations, but this component is none")
	}
}

func merged(base, over map[string]string) map[string]string {
	out := maps.Clone(base)
	if out == nil {
		return over
	}
	maps.Copy(out, over)
	return out
}

// setMetadata sets the common labels and annotations of objects.
func (m *CommonMetadata) setMetadata(objects []*manifest.Object) {
	for _, o := range objects {
		metadata, _ := o.Value["metadata"].(map[string]any)
		for field, all := range map[string]map[string]string{"labels": m.Labels, "annotations": m.Annotations} {
			if len(all) == 0 {
				continue
			}
			marks, _ := metadata[field].(map[string]any)
			if marks == nil {
				marks = map[string]any{}
				metadata[field] = marks
			}
			for key, value := range all {
				marks[key] = value
			}
		}
	}
}

// rename changes the names of all objects as their components say, and the references to them.
func (r *renderRun) rename(rendered [][]*manifest.Object) error {
	named := make([]kustomize.Named, len(rendered))
	for i, objects := range rendered {
		p := &r.resolved.Components[i]
		named[i] = kustomize.Named{Objects: objects, Prefix: p.namePrefix, Suffix: p.nameSuffix}
	}
	if !slices.ContainsFunc(named, func(n kustomize.Named) bool { return n.Prefix+n.Suffix != "" }) {
		return nil
	}
	if err := findDuplicateNames(named).Err(); err != nil {
		return err
	}
	return kustomize.Rename(r.ctx, named)
}

// findDuplicateNames finds objects that would have the same name, which kustomize does not describe
// well.
func findDuplicateNames(named []kustomize.Named) Errors {
	var all []*manifest.Object
	for _, n := range named {
		for _, o := range n.Objects {
			renamed := *o
			switch {
			case o.Group == "" && o.Kind == "Namespace", o.Group == "apiextensions.k8s.io",
				o.Group == "apiregistration.k8s.io":
			default:
				renamed.Name = n.Prefix + o.Name + n.Suffix
			}
			all = append(all, &renamed)
		}
	}
	return manifest.FindDuplicates(all)
}
