package helm

import (
	"errors"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/strvals"

	"github.com/ksctl/gitops/stacks/internal/values"
)

// SetValue returns the value at a path, both in the notation of --set, as Flux reads the targetPath
// of a HelmRelease: a text in quotes is a string, {a,b} is a list. Unlike with --set, the text
// cannot set another path. The lists of before that the path leads into keep their other items. The
// error does not contain the text.
func SetValue(before map[string]any, path, text string) (map[string]any, error) {
	shape := map[string]any{}
	if strings.ContainsAny(path, "=,{}") || strvals.ParseIntoString(path+"=x", shape) != nil {
		return nil, errors.New("is no path of one value, such as auth.password or hosts[0]")
	}
	parse := strvals.ParseInto
	for _, quote := range []string{`"`, "'"} {
		if len(text) > 1 && strings.HasPrefix(text, quote) && strings.HasSuffix(text, quote) {
			text, parse = text[1:len(text)-1], strvals.ParseIntoString
			break
		}
	}
	out := map[string]any{}
	if parse(path+"="+text, out) != nil || !hasShape(out, shape) {
		return nil, errors.New(`needs one value in the notation of Helm's --set: escape a comma as \,`)
	}
	for key := range shape {
		if existing, ok := before[key]; ok {
			out = values.Copy(map[string]any{key: existing})
			if parse(path+"="+text, out) != nil {
				return nil, errors.New("leads into a value that is no mapping or no list")
			}
		}
	}
	return out, nil
}

// hasShape reports whether a value has only the maps and lists of a shape, which ends with the
// text x.
func hasShape(v, shape any) bool {
	switch shape := shape.(type) {
	case map[string]any:
		m, ok := v.(map[string]any)
		if !ok || len(m) != len(shape) {
			return false
		}
		for key := range shape {
			if value, there := m[key]; !there || !hasShape(value, shape[key]) {
				return false
			}
		}
		return true
	case []any:
		list, ok := v.([]any)
		return ok && len(list) == len(shape) &&
			!slices.ContainsFunc(list[:max(len(list)-1, 0)], func(item any) bool { return item != nil }) &&
			(len(list) == 0 || hasShape(list[len(list)-1], shape[len(shape)-1]))
	}
	return true
}
