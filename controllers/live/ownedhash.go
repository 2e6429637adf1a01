package live

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// ownedHash is the length of the hash in Object.Owned: 12 bytes in base64.
	ownedHash = 16
	// holdsReplicas follows the hash when we own /spec/replicas or the scale
	// subresource took it over.
	holdsReplicas = "r"
)

// Drifted reports whether the fields that we own differ from what they were
// after our last apply. baseline and owned are values of Object.Owned.
//
// The number of replicas never counts, only who holds it: a write through the
// scale subresource is no drift, another manager's is. An object whose replicas
// were not ours at the last apply does not drift by being scaled, which is why
// this is not just a comparison of the two.
func Drifted(baseline, owned string) bool {
	if len(baseline) < ownedHash || len(owned) < ownedHash {
		return baseline != owned
	}
	if baseline[:ownedHash] != owned[:ownedHash] {
		return true
	}
	return baseline[ownedHash:] == holdsReplicas && owned[ownedHash:] != holdsReplicas
}

// CountsReplicas reports whether a value of Object.Owned tells who holds
// /spec/replicas: it is not among the ignored paths.
func CountsReplicas(owned string) bool { return len(owned) > ownedHash }

// hasher writes the owned part of an object in a form that no two differing
// parts share.
type hasher struct {
	buf []byte
	// path holds the keys of managedFields that lead to the current node, tokens
	// the JSON pointer.
	path, tokens []string
	others       []map[string]any
	// shared has, by pointer, the values that have an ignored part: whoever
	// changes that part owns the whole from then on, and must not by that alone
	// make it drift.
	shared map[string][]byte
	// secret is what hashes the data of a Secret; nil for other kinds.
	secret *secretData
	keys   [][]string
}

// hashOwned hashes the fields of an object that m.ours names.
func hashOwned(object map[string]any, m *managed, ignored []string, skip *pointers, secret *secretData) string {
	h := hasher{buf: make([]byte, 0, 2048), others: m.others, secret: secret}
	h.children(m.ours, object, true, skip)
	h.share(object, m, ignored, skip)
	sum := sha256.Sum256(h.buf)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func (h *hasher) children(node map[string]any, v any, present bool, ign *pointers) {
	keys := h.sorted(node)
	h.buf = append(h.buf, '(')
	list, _ := v.([]any)
	items := itemFinder{list: list}
	for _, key := range keys {
		child, ok := node[key].(map[string]any)
		if key == "." {
			h.mark(present)
		}
		if ok && len(key) > 1 {
			h.child(key, child, v, &items, ign)
		}
	}
	h.buf = append(h.buf, ')')
	h.release(keys)
}

// child writes what is owned at a key of a node and below; nothing if all of
// that is ignored.
func (h *hasher) child(key string, node map[string]any, v any, items *itemFinder, ign *pointers) {
	cv, present, token, cign := h.step(key, v, items, ign)
	if cign.covers() {
		return
	}
	start := len(h.buf)
	h.buf = appendText(append(h.buf, 'p'), key)
	h.path, h.tokens = append(h.path, key), append(h.tokens, token)
	at := len(h.buf)
	switch {
	case h.secret.holds(h.path):
		h.buf = h.secret.append(h.buf, h.path, h.others)
	case !isLeaf(node):
		h.children(node, cv, present, cign)
		if len(h.buf) == at+len("()") {
			h.buf = h.buf[:start]
		}
	case cign != nil:
		h.leaf(cv, present, cign)
		h.set(h.tokens, slices.Clone(h.buf[at:]))
		h.buf = h.buf[:start]
	default:
		h.leaf(cv, present, nil)
	}
	h.path, h.tokens = h.path[:len(h.path)-1], h.tokens[:len(h.tokens)-1]
}

func (h *hasher) set(tokens []string, value []byte) {
	if h.shared == nil {
		h.shared = map[string][]byte{}
	}
	h.shared[strings.Join(tokens, "\x00")] = value
}

// share writes the values with an ignored part, also those that another
// manager owns by now.
func (h *hasher) share(object map[string]any, m *managed, ignored []string, skip *pointers) {
	for _, p := range ignored {
		tokens, err := parsePointer(p)
		if err != nil {
			continue
		}
		depth := m.atomicAbove(object, tokens)
		if depth == 0 {
			continue
		}
		v, _ := lookup(object, tokens[:depth])
		ign := skip
		for _, t := range tokens[:depth] {
			ign = ign.child(t)
		}
		h.set(tokens[:depth], appendValue([]byte{'+'}, v, ign, nil))
	}
	for _, pointer := range slices.Sorted(maps.Keys(h.shared)) {
		h.buf = appendText(append(h.buf, 'q'), pointer)
		h.buf = append(h.buf, h.shared[pointer]...)
	}
}

// step goes from a value to the part of it that a key of managedFields names.
func (h *hasher) step(key string, v any, items *itemFinder, ign *pointers) (part any, present bool, token string, below *pointers) {
	if name, ok := strings.CutPrefix(key, "f:"); ok {
		m, _ := v.(map[string]any)
		part, present = m[name]
		return part, present, name, ign.child(name)
	}
	i := items.find(key)
	if i < 0 {
		return nil, false, "-", nil
	}
	if ign == nil {
		return items.list[i], true, "", nil
	}
	token = strconv.Itoa(i)
	return items.list[i], true, token, ign.child(token)
}

func (h *hasher) mark(present bool) {
	if present {
		h.buf = append(h.buf, '+')
	} else {
		h.buf = append(h.buf, '-')
	}
}

func (h *hasher) leaf(v any, present bool, ign *pointers) {
	h.mark(present)
	if !present {
		return
	}
	h.buf = appendValue(h.buf, v, ign, h.othersBelow(v))
}

// othersBelow is what other managers own inside a value that we own as a whole:
// we applied an empty map and they filled it. What is theirs is no drift of ours.
func (h *hasher) othersBelow(v any) []map[string]any {
	switch c := v.(type) {
	case map[string]any:
		if len(c) == 0 {
			return nil
		}
	case []any:
		if len(c) == 0 {
			return nil
		}
	default:
		return nil
	}
	var out []map[string]any
	for _, root := range h.others {
		node, ok := root, true
		for _, key := range h.path {
			if node, ok = node[key].(map[string]any); !ok {
				break
			}
		}
		if ok && !isLeaf(node) {
			out = append(out, node)
		}
	}
	return out
}

// sorted returns the keys of a node in order, in a slice that release takes back.
func (h *hasher) sorted(node map[string]any) []string {
	var keys []string
	if n := len(h.keys); n > 0 {
		keys, h.keys = h.keys[n-1][:0], h.keys[:n-1]
	}
	for k := range node {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (h *hasher) release(keys []string) { h.keys = append(h.keys, keys) }
