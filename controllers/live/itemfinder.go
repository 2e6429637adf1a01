package live

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// minItemsForTable is the length of a list from which a lookup table is faster than a scan.
const minItemsForTable = 16

// itemFinder finds the list items that managedFields keys identify.
type itemFinder struct {
	list []any
	// tables holds, for each set of key fields, the item indexes by the values of those fields.
	tables map[string]map[string]int
}

// find returns the index of the item; -1 if it is absent.
func (f *itemFinder) find(key string) int {
	if len(f.list) == 0 {
		return -1
	}
	if index, ok := strings.CutPrefix(key, "i:"); ok {
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(f.list) {
			return i
		}
		return -1
	}
	k, ok := parseItemKey(key)
	if !ok {
		return -1
	}
	if len(f.list) < minItemsForTable {
		return slices.IndexFunc(f.list, k.matches)
	}
	names := slices.Sorted(maps.Keys(k.fields))
	table := f.table(names)
	value, _ := k.identity(names)
	if i, ok := table[value]; ok {
		return i
	}
	return -1
}

func (f *itemFinder) table(names []string) map[string]int {
	id := strings.Join(names, "\x00")
	if t, ok := f.tables[id]; ok {
		return t
	}
	t := make(map[string]int, len(f.list))
	for i, item := range f.list {
		k := itemKey{value: item}
		if len(names) > 0 {
			m, ok := item.(map[string]any)
			if !ok {
				continue
			}
			k = itemKey{fields: m}
		}
		value, ok := k.identity(names)
		if !ok {
			continue
		}
		// The first of equal items wins, as in the scan of a short list.
		if _, dup := t[value]; !dup {
			t[value] = i
		}
	}
	if f.tables == nil {
		f.tables = map[string]map[string]int{}
	}
	f.tables[id] = t
	return t
}

// identity encodes the values of the named fields, or the value itself without names. It returns
// false if a field is missing.
func (k itemKey) identity(names []string) (string, bool) {
	if len(names) == 0 {
		return string(appendValue(nil, k.value, nil, nil)), true
	}
	var b []byte
	for _, name := range names {
		v, ok := k.fields[name]
		if !ok {
			return "", false
		}
		b = appendValue(b, v, nil, nil)
	}
	return string(b), true
}
