package fieldpath

import (
	"strings"

	"github.com/ksctl/gitops/stacks/problem"
)

// Set sets the fields of an object to a value, which replaces what was there. With create it adds
// missing maps, list items and fields; without, a missing field is an error. The value is copied
// for each field.
func (p Path) Set(object map[string]any, value any, create bool) error {
	s := setter{path: p, value: value, create: create}
	_, err := s.set(object, 0)
	return err
}

type setter struct {
	path   Path
	value  any
	create bool
}

// set sets the fields below a value, and returns what replaces it.
func (s *setter) set(at any, depth int) (any, error) {
	if depth == len(s.path.parts) {
		return copyOf(s.value), nil
	}
	part := s.path.parts[depth]
	if at == nil && s.create {
		if part.every {
			return nil, s.missing(depth)
		}
		if part.selects || part.index() >= 0 {
			at = []any{}
		} else {
			at = map[string]any{}
		}
	}
	switch at := at.(type) {
	case map[string]any:
		return at, s.setKey(at, part, depth)
	case []any:
		return s.setItems(at, part, depth)
	case nil:
		return nil, s.missing(depth)
	}
	return nil, problem.Newf("%s is no object and no list: a path does not go into a value", s.before(depth))
}

func (s *setter) setKey(at map[string]any, part part, depth int) error {
	if part.selects || part.every {
		return problem.Newf("%s is an object, not a list: %s selects items of a list; write the key instead",
			s.before(depth), part)
	}
	child, there := at[part.name]
	if !there && !s.create {
		return s.missing(depth + 1)
	}
	set, err := s.set(child, depth+1)
	if err != nil {
		return err
	}
	at[part.name] = set
	return nil
}

func (s *setter) setItems(at []any, part part, depth int) ([]any, error) {
	var selected []int
	index := part.index()
	for i, item := range at {
		if part.every || part.selects && part.matches(item) || !part.selects && i == index {
			selected = append(selected, i)
		}
	}
	switch {
	case len(selected) > 0:
	case !part.selects && !part.every && index < 0:
		return nil, problem.Newf("%s is a list: use an index, [key=value] or *", s.before(depth))
	case !s.create || part.every || !part.selects && index != len(at):
		return nil, s.missing(depth + 1)
	default:
		var item any
		if part.selects {
			item = any(part.value)
			if part.key != "" {
				item = map[string]any{part.key: part.value}
			}
		}
		at = append(at, item)
		selected = []int{len(at) - 1}
	}
	for _, i := range selected {
		set, err := s.set(at[i], depth+1)
		if err != nil {
			return nil, err
		}
		at[i] = set
	}
	return at, nil
}

// missing returns the error of a field that the object does not have.
func (s *setter) missing(depth int) error {
	return problem.Newf("%s is missing: create: true adds it", s.before(depth))
}

// before returns the first parts of the path, for messages.
func (s *setter) before(depth int) string {
	var names []string
	for _, p := range s.path.parts[:min(depth, len(s.path.parts))] {
		names = append(names, p.String())
	}
	if len(names) == 0 {
		return "the object"
	}
	return strings.Join(names, ".")
}

// copyOf returns a deep copy of a value.
func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[key] = copyOf(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = copyOf(item)
		}
		return out
	}
	return v
}
