package live

import (
	"encoding/binary"
	"slices"
	"strconv"
)

// appendValue appends an encoding of a JSON value. It skips ignored parts and parts that other
// managers own.
func appendValue(b []byte, v any, ign *pointers, others []map[string]any) []byte {
	switch c := normalize(v).(type) {
	case nil:
		return append(b, 'n')
	case bool:
		if c {
			return append(b, 't')
		}
		return append(b, 'f')
	case string:
		return appendText(append(b, 's'), c)
	case int64:
		return append(strconv.AppendInt(append(b, 'i'), c, 10), ';')
	case float64:
		return append(strconv.AppendFloat(append(b, 'd'), c, 'g', -1, 64), ';')
	case map[string]any:
		return appendMap(b, c, ign, others)
	case []any:
		return appendList(b, c, ign, others)
	default:
		// No JSON value decodes to another type.
		return append(b, '?')
	}
}

func appendMap(b []byte, m map[string]any, ign *pointers, others []map[string]any) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	b = append(b, 'm')
	for _, k := range keys {
		cign := ign.child(k)
		if cign.covers() {
			continue
		}
		below, theirs := below(others, func(o map[string]any) map[string]any { n, _ := field(o, k); return n })
		if theirs {
			continue
		}
		start := len(b)
		b = appendText(b, k)
		at := len(b)
		b = appendValue(b, m[k], cign, below)
		if below != nil && isEmpty(b[at:]) {
			b = b[:start]
		}
	}
	return append(b, 'e')
}

func appendList(b []byte, list []any, ign *pointers, others []map[string]any) []byte {
	b = append(b, 'l')
	for i, item := range list {
		cign := ign.item(i)
		if cign.covers() {
			continue
		}
		var inside []map[string]any
		if len(others) > 0 {
			index := strconv.Itoa(i)
			var theirs bool
			inside, theirs = below(others, func(o map[string]any) map[string]any { return itemNode(o, item, index) })
			if theirs {
				continue
			}
		}
		b = appendValue(b, item, cign, inside)
	}
	return append(b, 'e')
}

// below descends one step in the field sets of other managers. theirs is true when one of them
// owns the value at that step as a whole.
func below(others []map[string]any, step func(map[string]any) map[string]any) (out []map[string]any, theirs bool) {
	for _, o := range others {
		n := step(o)
		if n == nil {
			continue
		}
		if _, dot := n["."]; dot || len(n) == 0 {
			return nil, true
		}
		out = append(out, n)
	}
	return out, false
}

// isEmpty reports whether an encoded map or list has no content left.
func isEmpty(encoded []byte) bool {
	return len(encoded) == 2 && (encoded[0] == 'm' || encoded[0] == 'l')
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// normalize returns a number in the form that the API server writes: 2.0 becomes 2.
func normalize(v any) any {
	switch n := v.(type) {
	case float64:
		if i := int64(n); float64(i) == n && i > -1<<53 && i < 1<<53 {
			return i
		}
	case int:
		return int64(n)
	case int32:
		return int64(n)
	}
	return v
}
