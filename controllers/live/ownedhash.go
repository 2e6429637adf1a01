package live

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// ownedHashLen is the length of the hash in Object.OwnedHash: 12 bytes in base64.
	ownedHashLen = 16
	// replicasSuffix follows the hash when FieldManager owns /spec/replicas, or when the
	// field was written through the scale subresource.
	replicasSuffix = "r"
)

// Drifted reports whether the fields that FieldManager owns differ from their state after the last
// apply. baseline and owned are values of Object.OwnedHash.
//
// The value of /spec/replicas never counts, only its owner: a write through the scale subresource
// is no drift, a write by another manager is. If FieldManager did not own the replicas at the last
// apply, scaling the object is no drift. Therefore a plain comparison of the two is not enough.
func Drifted(baseline, owned string) bool {
	if len(baseline) < ownedHashLen || len(owned) < ownedHashLen {
		return baseline != owned
	}
	if baseline[:ownedHashLen] != owned[:ownedHashLen] {
		return true
	}
	return baseline[ownedHashLen:] == replicasSuffix && owned[ownedHashLen:] != replicasSuffix
}

// TracksReplicas reports whether a value of Object.OwnedHash has the suffix for /spec/replicas,
// which an object with an ignored /spec/replicas never has.
func TracksReplicas(owned string) bool { return len(owned) > ownedHashLen }

// hasher encodes the owned fields of an object. The encoding is injective: different fields or
// values have different encodings.
type hasher struct {
	buf []byte
	// path holds the managedFields keys of the current node, tokens its JSON pointer.
	path, tokens []string
	others       []map[string]any
	ignored      []ignoredPath
	// shared holds, by pointer, the encodings of atomic values with an ignored part. A
	// manager that changes the ignored part becomes the owner of the whole value. That
	// change of ownership alone must not count as drift.
	shared map[string][]byte
	// secret hashes the data of a Secret; nil for other kinds.
	secret  *secretData
	keyPool [][]string
}

// hashOwned hashes the fields of an object that m.ours names. With a key, nobody can guess their
// values from the hash.
func hashOwned(object map[string]any, m *managedFields, ignored []ignoredPath, skip *pointers,
	secret *secretData, key []byte) string {
	h := hasher{buf: make([]byte, 0, 2048), others: m.others, ignored: ignored, secret: secret}
	h.writeFields(m.ours, object, true, skip)
	h.writeShared(object, m, skip)
	sum := sha256.Sum256(h.buf)
	if len(key) > 0 {
		mac := hmac.New(sha256.New, key)
		mac.Write(h.buf)
		mac.Sum(sum[:0])
	}
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

func (h *hasher) writeFields(node map[string]any, v any, present bool, ign *pointers) {
	keys := h.sortedKeys(node)
	h.buf = append(h.buf, '(')
	list, _ := v.([]any)
	items := itemFinder{list: list}
	for _, key := range keys {
		child, ok := node[key].(map[string]any)
		if key == "." {
			h.writePresence(present)
		}
		if ok && len(key) > 1 {
			h.writeField(key, child, v, &items, ign)
		}
	}
	h.buf = append(h.buf, ')')
	h.recycleKeys(keys)
}

// writeField writes the owned fields at a key of a node and below it. It writes nothing if all of
// them are ignored.
func (h *hasher) writeField(key string, node map[string]any, v any, items *itemFinder, ign *pointers) {
	cv, present, token, cign := h.descend(key, v, items, ign)
	if cign.covers() {
		return
	}
	start := len(h.buf)
	h.buf = appendText(append(h.buf, 'p'), key)
	h.path, h.tokens = append(h.path, key), append(h.tokens, token)
	at := len(h.buf)
	switch {
	case h.secret.isDataPath(h.path):
		h.buf = h.secret.append(h.buf, h.path, h.others)
	case !isLeaf(node):
		h.writeFields(node, cv, present, cign)
		if len(h.buf) == at+len("()") {
			h.buf = h.buf[:start]
		}
	case cign != nil:
		h.writeLeaf(cv, present, cign)
		h.setShared(h.tokens, slices.Clone(h.buf[at:]))
		h.buf = h.buf[:start]
	default:
		h.writeLeaf(cv, present, nil)
	}
	h.path, h.tokens = h.path[:len(h.path)-1], h.tokens[:len(h.tokens)-1]
}

func (h *hasher) setShared(tokens []string, value []byte) {
	for _, p := range h.ignored {
		if p.keys != nil && len(p.tokens) >= len(tokens) && slices.Equal(p.tokens[:len(tokens)], tokens) {
			tokens = p.keys[:len(tokens)] // unlike indexes, keys do not change when another item is added
			break
		}
	}
	if h.shared == nil {
		h.shared = map[string][]byte{}
	}
	h.shared[strings.Join(tokens, "\x00")] = value
}

// writeShared writes the atomic values with an ignored part, including values that another manager
// owns now.
func (h *hasher) writeShared(object map[string]any, m *managedFields, skip *pointers) {
	for _, p := range h.ignored {
		depth := m.atomicAncestor(object, p)
		if depth == 0 {
			continue
		}
		tokens, ign := p.tokens[:depth], skip
		v, _ := lookup(object, tokens)
		for _, t := range tokens {
			ign = ign.child(t)
		}
		h.setShared(tokens, appendValue([]byte{'+'}, v, ign, nil))
	}
	for _, pointer := range slices.Sorted(maps.Keys(h.shared)) {
		h.buf = appendText(append(h.buf, 'q'), pointer)
		h.buf = append(h.buf, h.shared[pointer]...)
	}
}

// descend returns the part of a value that a managedFields key identifies.
func (h *hasher) descend(key string, v any, items *itemFinder,
	ign *pointers) (part any, present bool, token string, below *pointers) {
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

func (h *hasher) writePresence(present bool) {
	if present {
		h.buf = append(h.buf, '+')
	} else {
		h.buf = append(h.buf, '-')
	}
}

func (h *hasher) writeLeaf(v any, present bool, ign *pointers) {
	h.writePresence(present)
	if !present {
		return
	}
	h.buf = appendValue(h.buf, v, ign, h.othersBelow(v))
}

// othersBelow returns the field sets of other managers inside a value that FieldManager owns as a
// whole, for example an applied empty map that others filled. Their fields are no drift.
func (h *hasher) othersBelow(v any) []map[string]any {
	if !isComposite(v) {
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

// sortedKeys returns the keys of a node in order. The caller returns the slice with recycleKeys.
func (h *hasher) sortedKeys(node map[string]any) []string {
	var keys []string
	if n := len(h.keyPool); n > 0 {
		keys, h.keyPool = h.keyPool[n-1][:0], h.keyPool[:n-1]
	}
	for k := range node {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (h *hasher) recycleKeys(keys []string) { h.keyPool = append(h.keyPool, keys) }
