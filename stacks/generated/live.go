package generated

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// LiveFields returns JSON pointers to the fields of an object that stay as they are in the cluster,
// because they have values with StaysLive: keys of Secrets, and in other objects those with a
// certificate, which has to be that of the Secret. A list item with a name is [name=x].
func (v *Values) LiveFields(isSecret bool, object map[string]any) []string {
	staying := Values{Calls: map[string]Value{}}
	if v != nil {
		for call, value := range v.Calls {
			if value.StaysLive && (isSecret || value.PrivateKey != "") {
				staying.Calls[call] = value
			}
		}
	}
	if len(staying.Calls) == 0 {
		return nil
	}
	f := liveFields{has: staying.TextFinder()}
	if isSecret {
		f.walkSecret(object)
	} else {
		f.walk(object, "")
	}
	slices.Sort(f.found)
	return slices.Compact(f.found)
}

type liveFields struct {
	has   func(text string) bool
	found []string
}

// walkSecret finds the keys of a Secret. Those of stringData are stored in data.
func (f *liveFields) walkSecret(object map[string]any) {
	for _, field := range []string{"data", "stringData"} {
		data, _ := object[field].(map[string]any)
		for key, value := range data {
			text, _ := value.(string)
			at := "/data/" + pointerEscapes.Replace(key)
			f.check(text, at)
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil && field == "data" {
				f.check(string(raw), at)
			}
		}
	}
}

func (f *liveFields) walk(value any, at string) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			f.walk(value[key], at+"/"+pointerEscapes.Replace(key))
		}
	case []any:
		for i, item := range value {
			fields, _ := item.(map[string]any)
			token := strconv.Itoa(i)
			if name, ok := fields["name"].(string); ok {
				token = pointerEscapes.Replace("[name=" + name + "]")
			}
			f.walk(item, at+"/"+token)
		}
	case string:
		f.check(value, at)
	}
}

func (f *liveFields) check(text, at string) {
	if f.has(text) {
		f.found = append(f.found, at)
	}
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
