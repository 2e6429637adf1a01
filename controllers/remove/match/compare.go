package match

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// diff returns the path of the first rendered field that differs in the live object; empty if there
// is none. content is false if only metadata is rendered. Fields that only the live object has,
// such as defaults, are ignored.
func diff(want, have map[string]any) (path string, content bool) {
	want, have = maps.Clone(want), maps.Clone(have)
	if want["kind"] == "Secret" && want["apiVersion"] == "v1" {
		want, have = decodeSecret(want), decodeSecret(have)
	}
	if want["kind"] == "ClusterRole" && !isEmpty(want["aggregationRule"]) {
		delete(want, "rules") // aggregated by the control plane
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		switch k {
		case "apiVersion", "kind", "metadata", "status":
			continue
		}
		if isEmpty(want[k]) && isEmpty(have[k]) {
			continue
		}
		content = true
		if p := diffValue(k, want[k], have[k]); p != "" {
			return p, true
		}
	}
	return "", content
}

// diffLabels returns the path of the first rendered label that differs in the live object.
func diffLabels(want, have map[string]any) string {
	labelsOf := func(o map[string]any) any {
		meta, _ := o["metadata"].(map[string]any)
		return meta["labels"]
	}
	if isEmpty(labelsOf(want)) {
		return ""
	}
	return diffValue("metadata.labels", labelsOf(want), labelsOf(have))
}

// decodeSecret returns a Secret with decoded data, which includes stringData.
func decodeSecret(secret map[string]any) map[string]any {
	data := map[string]any{}
	if encoded, ok := secret["data"].(map[string]any); ok {
		for k, v := range encoded {
			data[k] = v
			if text, ok := v.(string); ok {
				if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
					data[k] = string(raw)
				}
			}
		}
	}
	if stringData, ok := secret["stringData"].(map[string]any); ok {
		maps.Copy(data, stringData)
	}
	out := maps.Clone(secret)
	delete(out, "stringData")
	out["data"] = data
	return out
}

// diffValue returns the path of the first field below path that differs.
func diffValue(path string, want, have any) string {
	if isEmpty(want) && have == nil {
		return "" // the API server drops empty fields
	}
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return path
		}
		for _, k := range slices.Sorted(maps.Keys(w)) {
			if p := diffValue(joinPath(path, k), w[k], h[k]); p != "" {
				return p
			}
		}
		return ""
	case []any:
		h, ok := have.([]any)
		if !ok {
			return path
		}
		return diffLists(path, w, h)
	}
	if reflect.DeepEqual(want, have) || sameNumber(want, have) || (isQuantity(path) && sameQuantity(want, have)) {
		return ""
	}
	return path
}

// diffLists compares the items of keyed lists by their key, so that items that a webhook has added
// are ignored, and those of other lists by index.
func diffLists(path string, want, have []any) string {
	if keys := mergeKeys(path, want, have); keys != nil {
		byKey := map[string]any{}
		for _, item := range have {
			byKey[itemKey(item, keys)] = item
		}
		for _, item := range want {
			k := itemKey(item, keys)
			itemPath := path + "[" + strings.TrimSuffix(k, "/TCP") + "]"
			h, found := byKey[k]
			if !found {
				return itemPath
			}
			if p := diffValue(itemPath, item, h); p != "" {
				return p
			}
		}
		return ""
	}
	if len(want) != len(have) {
		return path
	}
	for i := range want {
		if p := diffValue(fmt.Sprintf("%s[%d]", path, i), want[i], have[i]); p != "" {
			return p
		}
	}
	return ""
}

// listKeys are the possible merge keys of a list, by the name of the list.
var listKeys = map[string][][]string{
	"containers": {{"name"}}, "initContainers": {{"name"}}, "volumes": {{"name"}}, "env": {{"name"}},
	"imagePullSecrets": {{"name"}}, "webhooks": {{"name"}},
	"volumeMounts": {{"mountPath"}}, "volumeDevices": {{"devicePath"}}, "hostAliases": {{"ip"}},
	"ports": {{"containerPort", "protocol"}, {"port", "protocol"}},
}

// mergeKeys returns the fields that are unique for all items of both lists; nil if there are none.
func mergeKeys(path string, want, have []any) []string {
	for _, keys := range listKeys[path[strings.LastIndexByte(path, '.')+1:]] {
		if haveUniqueKeys(want, keys) && haveUniqueKeys(have, keys) {
			return keys
		}
	}
	return nil
}

func haveUniqueKeys(items []any, keys []string) bool {
	seen := map[string]bool{}
	for _, item := range items {
		k := itemKey(item, keys)
		if k == "" || seen[k] {
			return false
		}
		seen[k] = true
	}
	return true
}

// itemKey returns the key of an item; empty if a field is missing.
func itemKey(item any, keys []string) string {
	m, _ := item.(map[string]any)
	var parts []string
	for _, k := range keys {
		v := m[k]
		if v == nil && k == "protocol" {
			v = "TCP"
		}
		switch v.(type) {
		case string, int64:
			parts = append(parts, fmt.Sprint(v))
		default:
			return ""
		}
	}
	return strings.Join(parts, "/")
}

// isEmpty reports whether the API server may drop a value, because it is empty or has only empty
// fields.
func isEmpty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, item := range v {
			if !isEmpty(item) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	case bool:
		return !v
	case int64:
		return v == 0
	case float64:
		return v == 0
	}
	return false
}

// sameNumber compares numbers by value: 1 equals 1.0.
func sameNumber(a, b any) bool {
	x, y := toFloat(a), toFloat(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

func toFloat(v any) *big.Float {
	switch v := v.(type) {
	case int64:
		return new(big.Float).SetInt64(v)
	case float64:
		return big.NewFloat(v)
	}
	return nil
}

// quantities are the names of fields with quantities, or maps of them, which the API server may
// convert to their canonical form.
var quantities = []string{"requests", "limits", "capacity", "hard", "podFixed", "overhead", "sizeLimit", "divisor",
	"averageValue", "target"}

func isQuantity(path string) bool {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })
	last := parts[max(0, len(parts)-2):]
	// The items of a LimitRange have maps with other names.
	return slices.ContainsFunc(last, func(p string) bool { return slices.Contains(quantities, p) }) ||
		(strings.HasPrefix(path, "spec.limits[") && len(parts) > 3)
}

func sameQuantity(a, b any) bool {
	x, errX := toQuantity(a)
	y, errY := toQuantity(b)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

func toQuantity(v any) (resource.Quantity, error) {
	switch v.(type) {
	case string, int64, float64:
		return resource.ParseQuantity(fmt.Sprint(v))
	}
	return resource.Quantity{}, resource.ErrFormatWrong
}

// joinPath appends a field name to a path.
func joinPath(path, name string) string {
	if strings.ContainsAny(name, ".[]/ ") || name == "" {
		return fmt.Sprintf("%s[%q]", path, name)
	}
	return path + "." + name
}
