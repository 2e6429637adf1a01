// Package fieldpath parses the paths of fields as kustomize writes them, and sets the fields.
package fieldpath

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ksctl/gitops/stacks/problem"
)

// Path leads to fields of an object, such as spec.template.spec.containers.[name=app].image. Its
// parts are keys of maps, indexes of lists, * for all items, and [key=value] for the items with a
// value. A dot in a key is written \. or [a.b].
type Path struct {
	text  string
	parts []part
}

// part is one part of a path: a key or an index, all items, or the items with a value.
type part struct {
	name string
	// every is true for *.
	every bool
	// selects is true for [key=value]; key is empty for [=value], the value of the item itself.
	selects    bool
	key, value string
}

// maxParts bounds the parts of a path.
const maxParts = 64

// Parse parses a path.
func Parse(text string) (Path, error) {
	p := Path{text: text}
	rest := text
	for first := true; rest != "" || first; first = false {
		next, after, err := parsePart(rest)
		if err != nil {
			return Path{}, err
		}
		p.parts = append(p.parts, next)
		if len(p.parts) > maxParts {
			return Path{}, problem.Newf("has more than %d parts", maxParts)
		}
		if after == "" {
			break
		}
		if rest = strings.TrimPrefix(after, "."); rest == "" {
			return Path{}, problem.Newf("ends with a dot")
		}
	}
	if why := p.refused(); why != "" {
		return Path{}, problem.Newf("%s", why)
	}
	return p, nil
}

// parsePart parses the first part of a path, and returns the rest.
func parsePart(text string) (part, string, error) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		token, rest, closed := strings.Cut(inner, "]")
		key, value, selects := strings.Cut(token, "=")
		switch {
		case !closed:
			return part{}, "", problem.Newf("has a [ without ]")
		case token == "":
			return part{}, "", problem.Newf("has an empty []")
		case rest != "" && rest[0] != '.' && rest[0] != '[':
			return part{}, "", problem.Newf("has text after %q: separate the parts by dots", "["+token+"]")
		case selects:
			return part{selects: true, key: key, value: value}, rest, nil
		}
		return part{name: token}, rest, nil
	}
	var name strings.Builder
	i := 0
	for ; i < len(text) && text[i] != '.' && text[i] != '['; i++ {
		if text[i] == '\\' && i+1 < len(text) && text[i+1] == '.' {
			i++
		}
		name.WriteByte(text[i])
	}
	if name.Len() == 0 {
		return part{}, "", problem.Newf("has an empty part")
	}
	return part{name: name.String(), every: text[:i] == "*"}, text[i:], nil
}

// refused returns why a field is not set; empty if it is.
func (p Path) refused() string {
	names := make([]string, len(p.parts))
	for i, part := range p.parts {
		names[i] = part.name
	}
	identity := [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"},
		{"metadata", "generateName"}}
	for _, field := range identity {
		n := min(len(names), len(field))
		if slices.Equal(names[:n], field[:n]) {
			return "is " + strings.Join(field, ".") + ", or contains it: it identifies the object, and is not set here"
		}
	}
	return ""
}

// Root returns the first key of the path, and the number of its parts.
func (p Path) Root() (key string, parts int) { return p.parts[0].name, len(p.parts) }

// String returns the path as it was written.
func (p Path) String() string { return p.text }

// String returns the part for messages.
func (p part) String() string {
	switch {
	case p.selects:
		return "[" + p.key + "=" + p.value + "]"
	case strings.Contains(p.name, "."):
		return "[" + p.name + "]"
	}
	return p.name
}

// index returns the index of a list that a part is; -1 if it is none.
func (p part) index() int {
	i, err := strconv.Atoi(p.name)
	if err != nil || i < 0 || strconv.Itoa(i) != p.name {
		return -1
	}
	return i
}

// matches reports whether a list item is selected.
func (p part) matches(item any) bool {
	if p.key != "" {
		m, _ := item.(map[string]any)
		item = m[p.key]
	}
	got, isScalar := text(item)
	return isScalar && got == p.value
}

// text returns a scalar as in a manifest, and false for other values and null.
func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}
