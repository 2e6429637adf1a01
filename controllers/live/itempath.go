package live

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxIgnoredFields bounds the fields of one object to which its ignored paths expand. Further
// fields are not ignored.
const maxIgnoredFields = 1024

const (
	// everyItem is the token for all items of a list.
	everyItem = "*"
	// noItem is the token for an item that a list does not have, as in RFC 6901.
	noItem = "-"
)

// FindItem returns the index of the list item that a token of a pointer identifies; -1 if there is
// none. The token is an index, [field=value], or a managedFields key (k:), whose fields may be
// absent in the item: the API server sets their defaults.
func FindItem(list []any, token string) int {
	if i, err := strconv.Atoi(token); err == nil {
		if i < 0 || i >= len(list) {
			return -1
		}
		return i
	}
	if s, ok := parseItemSelector(token); ok {
		return slices.IndexFunc(list, s.matches)
	}
	k, ok := parseItemKey(token)
	if !ok || k.fields == nil {
		return -1
	}
	if i := slices.IndexFunc(list, k.matches); i >= 0 {
		return i
	}
	return slices.IndexFunc(list, k.matchesDefaults)
}

// IsItemToken is true for a token that identifies a list item, and is no index.
func IsItemToken(token string) bool {
	_, ok := parseItemSelector(token)
	return ok || isItemKey(token)
}

func isItemKey(token string) bool { return strings.HasPrefix(token, "k:{") }

// matchesDefaults reports whether an item that lacks some of the key fields has the others.
func (k itemKey) matchesDefaults(item any) bool {
	m, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for name, want := range k.fields {
		if got, ok := m[name]; ok && !equalValues(want, got) {
			return false
		}
	}
	return true
}

// itemSelector selects the list items in which a field has a value.
type itemSelector struct{ field, value string }

// parseItemSelector parses a token of the form [field=value].
func parseItemSelector(token string) (itemSelector, bool) {
	inner, ok := strings.CutPrefix(token, "[")
	if !ok {
		return itemSelector{}, false
	}
	if inner, ok = strings.CutSuffix(inner, "]"); !ok {
		return itemSelector{}, false
	}
	field, value, ok := strings.Cut(inner, "=")
	return itemSelector{field, value}, ok && field != ""
}

func (s itemSelector) String() string { return "[" + s.field + "=" + s.value + "]" }

func (s itemSelector) matches(item any) bool {
	m, _ := item.(map[string]any)
	text, ok := scalarText(m[s.field])
	return ok && text == s.value
}

// scalarText returns a string, a number or a boolean as in a manifest.
func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), true
	}
	return "", false
}

// pathExpansion expands an ignored path to the fields of an object.
type pathExpansion struct {
	path ignoredPath
	// byKey is true if the path selects items by other tokens than indexes.
	byKey bool
	// tokens and keys lead to the current value.
	tokens, keys []string
	out          *[]ignoredPath
}

// expandIgnored returns the fields of an object to which the ignored paths lead. Each path has at
// least one: of an item that does not exist, the token is noItem.
func (m *managedFields) expandIgnored(object map[string]any, paths []ignoredPath) []ignoredPath {
	if !slices.ContainsFunc(paths, ignoredPath.selectsItems) {
		return paths
	}
	var out []ignoredPath
	nodes := append([]map[string]any{m.ours}, m.others...)
	for _, p := range paths {
		if !p.selectsItems() {
			out = append(out, p)
			continue
		}
		x := pathExpansion{path: p, byKey: slices.ContainsFunc(p.tokens, isPattern), out: &out}
		x.expand(object, nodes)
	}
	return out
}

// selectsItems is true for a path with a token that may lead to a list item.
func (p ignoredPath) selectsItems() bool {
	return slices.ContainsFunc(p.tokens, func(t string) bool {
		_, err := strconv.Atoi(t)
		return err == nil || isPattern(t)
	})
}

func isPattern(token string) bool { return token == everyItem || IsItemToken(token) }

// expand adds the fields below a value. nodes are the managedFields nodes of the value.
func (x *pathExpansion) expand(v any, nodes []map[string]any) {
	depth := len(x.tokens)
	if depth == len(x.path.tokens) {
		x.add(x.tokens, x.keys)
		return
	}
	token, last := x.path.tokens[depth], depth == len(x.path.tokens)-1
	switch c := v.(type) {
	case map[string]any:
		x.descend(token, token, c[token], children(nodes, "f:"+token))
	case []any:
		if token == everyItem && last {
			x.add(x.tokens, x.keys) // all items are the list
			return
		}
		x.expandItems(c, nodes, token)
	default:
		x.addMissing()
	}
}

// expandItems expands the items of a list that a token selects.
func (x *pathExpansion) expandItems(list []any, nodes []map[string]any, token string) {
	var selected []int
	if s, ok := parseItemSelector(token); ok || token == everyItem {
		for i, item := range list {
			if !ok || s.matches(item) {
				selected = append(selected, i)
			}
		}
	} else if i := FindItem(list, token); i >= 0 {
		selected = []int{i}
	}
	if len(selected) == 0 {
		x.addMissing()
		return
	}
	var itemKeys map[int]string
	if x.byKey {
		itemKeys = findItemKeys(list, nodes)
	}
	for _, i := range selected {
		index := strconv.Itoa(i)
		key, keyed := itemKeys[i]
		switch {
		case index == token:
			x.descend(index, index, list[i], children(nodes, key))
		case keyed:
			x.descend(index, key, list[i], children(nodes, key))
		case len(selected) == 1 && token != everyItem:
			x.descend(index, token, list[i], nil)
		default: // the items of an atomic list have only their indexes
			x.descend(index, index, list[i], nil)
		}
	}
}

func (x *pathExpansion) descend(token, key string, v any, nodes []map[string]any) {
	x.tokens, x.keys = append(x.tokens, token), append(x.keys, key)
	x.expand(v, nodes)
	x.tokens, x.keys = x.tokens[:len(x.tokens)-1], x.keys[:len(x.keys)-1]
}

// addMissing adds a field that the object does not have. A field of a missing list item is sent as
// at the creation; a missing item itself counts as removed by another client.
func (x *pathExpansion) addMissing() {
	depth := len(x.tokens)
	rest := x.path.tokens[depth:]
	keys := slices.Concat(x.keys, rest)
	for i, t := range rest[:len(rest)-1] {
		_, err := strconv.Atoi(t)
		if isPattern(t) || (i == 0 && err == nil) {
			keys[depth+i] = noItem
		}
	}
	x.add(slices.Concat(x.tokens, rest), keys)
}

func (x *pathExpansion) add(tokens, keys []string) {
	if len(*x.out) >= maxIgnoredFields {
		return
	}
	p := ignoredPath{pointer: x.path.pointer, tokens: slices.Clone(tokens)}
	if !slices.Equal(keys, x.path.tokens) {
		p.keys = slices.Clone(keys)
	}
	*x.out = append(*x.out, p)
}

// children returns the nodes at a managedFields key.
func children(nodes []map[string]any, key string) []map[string]any {
	var out []map[string]any
	for _, n := range nodes {
		if c, ok := n[key].(map[string]any); ok {
			out = append(out, c)
		}
	}
	return out
}

// findItemKeys returns the managedFields keys of list items by their index. Those of FieldManager,
// whose node is the first, win over those of other API versions.
func findItemKeys(list []any, nodes []map[string]any) map[int]string {
	out := map[int]string{}
	finder := itemFinder{list: list}
	for _, n := range nodes {
		for _, key := range slices.Sorted(maps.Keys(n)) {
			if !isItemKey(key) {
				continue
			}
			if i := finder.find(key); i >= 0 && out[i] == "" {
				out[i] = key
			}
		}
	}
	return out
}
