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

// compare returns the path of the first field that is rendered and is not so in
// the live object; empty when there is none. content is false when nothing but
// metadata is rendered. Fields that only the live object has, such as defaults,
// do not count.
func compare(want, have map[string]any) (path string, content bool) {
	want, have = maps.Clone(want), maps.Clone(have)
	if want["kind"] == "Secret" && want["apiVersion"] == "v1" {
		want, have = plain(want), plain(have)
	}
	if want["kind"] == "ClusterRole" && !zero(want["aggregationRule"]) {
		delete(want, "rules") // the control plane fills them in
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		switch k {
		case "apiVersion", "kind", "metadata", "status":
			continue
		}
		if zero(want[k]) && zero(have[k]) {
			continue
		}
		content = true
		if p := differs(k, want[k], have[k]); p != "" {
			return p, true
		}
	}
	return "", content
}

// labels returns the path of a label that is rendered and is another one in the
// live object.
func labels(want, have map[string]any) string {
	of := func(o map[string]any) any {
		meta, _ := o["metadata"].(map[string]any)
		return meta["labels"]
	}
	if zero(of(want)) {
		return ""
	}
	return differs("metadata.labels", of(want), of(have))
}

// plain is a Secret whose data are not encoded, wherever they stood.
func plain(secret map[string]any) map[string]any {
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
	if written, ok := secret["stringData"].(map[string]any); ok {
		maps.Copy(data, written)
	}
	out := maps.Clone(secret)
	delete(out, "stringData")
	out["data"] = data
	return out
}

// differs returns the path of the first field below path that is not the same.
func differs(path string, want, have any) string {
	if zero(want) && have == nil {
		return "" // the API server drops what says nothing
	}
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return path
		}
		for _, k := range slices.Sorted(maps.Keys(w)) {
			if p := differs(field(path, k), w[k], h[k]); p != "" {
				return p
			}
		}
		return ""
	case []any:
		h, ok := have.([]any)
		if !ok {
			return path
		}
		return listDiffers(path, w, h)
	}
	if reflect.DeepEqual(want, have) || sameNumber(want, have) || (isQuantity(path) && sameQuantity(want, have)) {
		return ""
	}
	return path
}

// listDiffers compares items by their key where the kind of list has one, so that
// what a webhook added does not count; else by their place.
func listDiffers(path string, want, have []any) string {
	if keys := keysOf(path, want, have); keys != nil {
		places := map[string]any{}
		for _, item := range have {
			places[keyOf(item, keys)] = item
		}
		for _, item := range want {
			k := keyOf(item, keys)
			at := path + "[" + strings.TrimSuffix(k, "/TCP") + "]"
			h, there := places[k]
			if !there {
				return at
			}
			if p := differs(at, item, h); p != "" {
				return p
			}
		}
		return ""
	}
	if len(want) != len(have) {
		return path
	}
	for i := range want {
		if p := differs(fmt.Sprintf("%s[%d]", path, i), want[i], have[i]); p != "" {
			return p
		}
	}
	return ""
}

// listKeys are the fields that tell the items of a list apart, by the name of the list.
var listKeys = map[string][][]string{
	"containers": {{"name"}}, "initContainers": {{"name"}}, "volumes": {{"name"}}, "env": {{"name"}},
	"imagePullSecrets": {{"name"}}, "webhooks": {{"name"}},
	"volumeMounts": {{"mountPath"}}, "volumeDevices": {{"devicePath"}}, "hostAliases": {{"ip"}},
	"ports": {{"containerPort", "protocol"}, {"port", "protocol"}},
}

// keysOf are the fields by which all items of both lists can be told apart; nil
// when there are none.
func keysOf(path string, want, have []any) []string {
	for _, keys := range listKeys[path[strings.LastIndexByte(path, '.')+1:]] {
		if distinct(want, keys) && distinct(have, keys) {
			return keys
		}
	}
	return nil
}

func distinct(items []any, keys []string) bool {
	seen := map[string]bool{}
	for _, item := range items {
		k := keyOf(item, keys)
		if k == "" || seen[k] {
			return false
		}
		seen[k] = true
	}
	return true
}

// keyOf is empty for an item that has no key.
func keyOf(item any, keys []string) string {
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

// zero is true for what the API server may drop: nothing, and what has nothing in it.
func zero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, item := range v {
			if !zero(item) {
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

// sameNumber is true for 1 and 1.0.
func sameNumber(a, b any) bool {
	x, y := number(a), number(b)
	return x != nil && y != nil && x.Cmp(y) == 0
}

func number(v any) *big.Float {
	switch v := v.(type) {
	case int64:
		return new(big.Float).SetInt64(v)
	case float64:
		return big.NewFloat(v)
	}
	return nil
}

// quantities are fields that hold quantities, or maps of them, which the API
// server writes in its own form.
var quantities = []string{"requests", "limits", "capacity", "hard", "podFixed", "overhead", "sizeLimit", "divisor", "averageValue", "target"}

func isQuantity(path string) bool {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })
	last := parts[max(0, len(parts)-2):]
	// The items of a LimitRange have maps of their own.
	return slices.ContainsFunc(last, func(p string) bool { return slices.Contains(quantities, p) }) ||
		(strings.HasPrefix(path, "spec.limits[") && len(parts) > 3)
}

func sameQuantity(a, b any) bool {
	x, errX := quantity(a)
	y, errY := quantity(b)
	return errX == nil && errY == nil && x.Cmp(y) == 0
}

func quantity(v any) (resource.Quantity, error) {
	switch v.(type) {
	case string, int64, float64:
		return resource.ParseQuantity(fmt.Sprint(v))
	}
	return resource.Quantity{}, resource.ErrFormatWrong
}

// field appends a name to a path.
func field(path, name string) string {
	if strings.ContainsAny(name, ".[]/ ") || name == "" {
		return fmt.Sprintf("%s[%q]", path, name)
	}
	return path + "." + name
}
