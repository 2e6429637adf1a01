package values

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/ksctl/gitops/stacks/problem"
)

// Violation is one violation of a schema. It has the path and what is expected, but never the
// value, which may be secret.
type Violation struct {
	// Path is the path of keys and indexes to the value.
	Path []string
	// Unknown is set for a key that is not in the schema; Suggestion is the most similar key in it.
	Unknown    string
	Suggestion string
	Message    string
}

// String returns the path and what is expected.
func (v Violation) String() string {
	if len(v.Path) == 0 {
		return v.Message
	}
	return fmt.Sprintf("%s %s", Dotted(v.Path), v.Message)
}

// Dotted formats a path as users write it: grafana.hosts[0].
func Dotted(path []string) string {
	var b strings.Builder
	for i, part := range path {
		if _, err := strconv.Atoi(part); err == nil && i > 0 {
			b.WriteString("[" + part + "]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(part)
	}
	return b.String()
}

// Validate returns all violations in v.
func (s *Schema) Validate(v any) []Violation {
	err := s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	ve, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []Violation{{Message: "cannot be checked against the schema"}}
	}
	out := s.violations(ve)
	slices.SortStableFunc(out, func(a, b Violation) int {
		return strings.Compare(Dotted(a.Path)+" "+a.Unknown, Dotted(b.Path)+" "+b.Unknown)
	})
	return slices.CompactFunc(out, func(a, b Violation) bool {
		return a.String() == b.String() && a.Unknown == b.Unknown
	})
}

func (s *Schema) violations(e *jsonschema.ValidationError) []Violation {
	path := slices.Clone(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.AdditionalProperties:
		known := keys(s.subschema(e.SchemaURL)["properties"])
		var out []Violation
		for _, name := range slices.Sorted(slices.Values(k.Properties)) {
			out = append(out, Violation{
				Path: path, Unknown: name, Suggestion: problem.Nearest(name, known),
				Message: fmt.Sprintf("has the key %q, which is not in the schema", name),
			})
		}
		return out
	case *kind.Required:
		var out []Violation
		for _, name := range k.Missing {
			out = append(out, Violation{Path: append(slices.Clone(path), name), Message: "is required"})
		}
		return out
	case *kind.Contains, *kind.MinContains:
		return []Violation{{Path: path, Message: "lacks an item that the schema requires"}}
	case *kind.AnyOf, *kind.OneOf:
		return []Violation{{Path: path, Message: "matches none of the schema's alternatives" + s.alternatives(e)}}
	}
	if len(e.Causes) == 0 {
		return []Violation{{Path: path, Message: expected(e.ErrorKind)}}
	}
	var out []Violation
	for _, cause := range e.Causes {
		out = append(out, s.violations(cause)...)
	}
	return out
}

func (s *Schema) alternatives(e *jsonschema.ValidationError) string {
	var parts []string
	for _, cause := range e.Causes {
		for _, v := range s.violations(cause) {
			v.Path = v.Path[min(len(v.Path), len(e.InstanceLocation)):]
			if text := v.String(); !slices.Contains(parts, text) && len(parts) < 4 {
				parts = append(parts, text)
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", or ")
}

// subschema returns the part of the schema that a URL points to.
func (s *Schema) subschema(location string) map[string]any {
	_, fragment, _ := strings.Cut(location, "#")
	var node any = s.doc
	for part := range strings.SplitSeq(strings.TrimPrefix(fragment, "/"), "/") {
		if part == "" {
			continue
		}
		if plain, err := url.PathUnescape(part); err == nil {
			part = plain
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch n := node.(type) {
		case map[string]any:
			node = n[part]
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(n) {
				return nil
			}
			node = n[i]
		default:
			return nil
		}
	}
	m, _ := node.(map[string]any)
	return m
}

// expected describes what a keyword requires.
func expected(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("must be %s, not %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Enum:
		return fmt.Sprintf("must be one of %s", join("%v", k.Want))
	case *kind.Const:
		return fmt.Sprintf("must be %v", k.Want)
	case *kind.DependentRequired:
		return fmt.Sprintf("needs %s if %q is set", join("%q", k.Missing), k.Prop)
	case *kind.Dependency:
		return fmt.Sprintf("needs %s if %q is set", join("%q", k.Missing), k.Prop)
	case *kind.Format:
		return fmt.Sprintf("must be a valid %s", k.Want)
	case *kind.Pattern:
		return fmt.Sprintf("must match the pattern %s", k.Want)
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "must be more than " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "must be less than " + k.Want.RatString()
	case *kind.MultipleOf:
		return "must be a multiple of " + k.Want.RatString()
	}
	return expectedSize(k)
}

func expectedSize(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("must have at least %d keys", k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("must have at most %d keys", k.Want)
	case *kind.UniqueItems:
		return fmt.Sprintf("has the same item at %d and %d", k.Duplicates[0], k.Duplicates[1])
	case *kind.FalseSchema:
		return "is not allowed"
	case *kind.Not:
		return "is excluded by the schema"
	}
	return fmt.Sprintf("does not meet the schema's %q", strings.Join(k.KeywordPath(), "/"))
}

// join formats the items of a list and joins them.
func join[T any](format string, items []T) string {
	out := make([]string, len(items))
	for i, item := range items {
		out[i] = fmt.Sprintf(format, item)
	}
	return strings.Join(out, ", ")
}
