package manifests

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// maxAligned bounds the comparisons of the items of two lists.
const maxAligned = 1 << 18

// pair is an item of the new list: that of the old list which it replaces, or -1.
type pair struct{ old, updated int }

// align returns how a list becomes another one: pairs in the order of both, where -1 is an item
// that is added or removed. Equal items are paired first, then those with the same name.
func align(old, updated []any) []pair {
	a, b := encodeAll(old), encodeAll(updated)
	first := 0
	for first < min(len(a), len(b)) && a[first] == b[first] {
		first++
	}
	last := 0
	for last < min(len(a), len(b))-first && a[len(a)-1-last] == b[len(b)-1-last] {
		last++
	}
	out := alignInOrder(old[:first], updated[:first])
	i, j := len(a)-last, len(b)-last
	out = append(out, alignDifferent(old[first:i], updated[first:j], a[first:i], b[first:j]).shift(first, first)...)
	return append(out, alignInOrder(old[i:], updated[j:]).shift(i, j)...)
}

// alignDifferent is align for lists that neither begin nor end with equal items. a and b are the
// encoded items.
func alignDifferent(old, updated []any, a, b []string) pairs {
	rows, columns := len(old)+1, len(updated)+1
	if rows*columns > maxAligned {
		return alignInOrder(old, updated)
	}
	// cost[i*columns+j] is that of the items from i and j on.
	cost := make([]int, rows*columns)
	for i := len(old); i >= 0; i-- {
		for j := len(updated); j >= 0; j-- {
			var best int
			switch {
			case i == len(old):
				best = (len(updated) - j) * addCost
			case j == len(updated):
				best = (len(old) - i) * addCost
			default:
				best = min(cost[(i+1)*columns+j], cost[i*columns+j+1]) + addCost
				best = min(best, cost[(i+1)*columns+j+1]+changeCost(old[i], updated[j], a[i] == b[j]))
			}
			cost[i*columns+j] = best
		}
	}
	var out pairs
	i, j := 0, 0
	for i < len(old) && j < len(updated) {
		change := changeCost(old[i], updated[j], a[i] == b[j])
		switch cost[i*columns+j] {
		case cost[(i+1)*columns+j+1] + change:
			out = append(out, pair{i, j})
			i, j = i+1, j+1
		case cost[(i+1)*columns+j] + addCost:
			out = append(out, pair{i, -1})
			i++
		default:
			out = append(out, pair{-1, j})
			j++
		}
	}
	return append(out, alignInOrder(old[i:], updated[j:]).shift(i, j)...)
}

type pairs []pair

// shift adds to the indexes of both lists.
func (p pairs) shift(i, j int) pairs {
	for k := range p {
		if p[k].old >= 0 {
			p[k].old += i
		}
		if p[k].updated >= 0 {
			p[k].updated += j
		}
	}
	return p
}

// alignInOrder pairs items by their index.
func alignInOrder(old, updated []any) pairs {
	var out pairs
	for i := range max(len(old), len(updated)) {
		p := pair{i, i}
		if i >= len(old) {
			p.old = -1
		}
		if i >= len(updated) {
			p.updated = -1
		}
		out = append(out, p)
	}
	return out
}

const addCost = 10

// changeCost is less than that of removing and adding an item if the two are probably the same one.
func changeCost(a, b any, same bool) int {
	if same {
		return 0
	}
	m, okA := a.(map[string]any)
	other, okB := b.(map[string]any)
	if okA != okB {
		return 3 * addCost
	}
	if !okA {
		return 2*addCost - 1
	}
	for _, key := range []string{"name", "key", "id"} {
		if m[key] != nil || other[key] != nil {
			if equal(m[key], other[key]) {
				return 1
			}
			return differentCost(m, other, max(len(m), len(other))/2)
		}
	}
	return differentCost(m, other, 0)
}

// differentCost is that of mappings without a name in common: an item is changed only if it keeps
// some keys, and at least minEqual values.
func differentCost(m, other map[string]any, minEqual int) int {
	common, same := 0, 0
	for key := range m {
		if _, ok := other[key]; ok {
			common++
			if equal(m[key], other[key]) {
				same++
			}
		}
	}
	if common == 0 || same < minEqual {
		return 3 * addCost
	}
	return 2*addCost - 1
}

// encodeAll returns comparable forms of values.
func encodeAll(items []any) []string {
	out := make([]string, len(items))
	for i, item := range items {
		text, err := json.Marshal(item)
		if err == nil {
			out[i] = string(text)
		}
	}
	return out
}

// blockSequence changes a list in block style.
func (e *editor) blockSequence(n *yaml.Node, old, updated []any, end int) bool {
	dashes, ok := e.dashes(n)
	if !ok || len(dashes) != len(old) {
		return false
	}
	indent, s := n.Column-1, e.like(n)
	itemEnd := func(i int) int {
		if i+1 < len(dashes) {
			return e.lineAt(dashes[i+1])
		}
		return end
	}
	before := "" // items before the first one
	after := map[int]string{}
	previous, aligned := -1, align(old, updated)
	for _, p := range aligned {
		switch {
		case p.old < 0 && previous < 0:
			before += s.item(updated[p.updated], indent, "") + e.eol + spaces(indent)
		case p.old < 0:
			after[previous] += e.eol + spaces(indent) + s.item(updated[p.updated], indent, "")
		default:
			previous = p.old
		}
	}
	if before != "" && !e.insertFirst(n, dashes[0], before) {
		return false
	}
	for _, i := range slices.Sorted(maps.Keys(after)) {
		last, ok := e.contentEnd(n.Content[i], e.lineAt(dashes[i]), itemEnd(i))
		if !ok {
			return false
		}
		e.add(e.lineEnd(last), e.lineEnd(last), after[i])
	}
	for _, p := range aligned {
		switch {
		case p.old < 0:
		case p.updated < 0:
			if !e.removeItem(n, dashes, p.old, itemEnd(p.old)) {
				return false
			}
		case !e.value(n.Content[p.old], old[p.old], updated[p.updated], itemEnd(p.old), false):
			if !e.replaceItem(n.Content[p.old], dashes[p.old], updated[p.updated], indent, itemEnd(p.old)) {
				return false
			}
		}
	}
	return true
}

// insertFirst inserts items before the first one, and before the comments directly above it.
func (e *editor) insertFirst(n *yaml.Node, dash int, items string) bool {
	if !e.firstColumn(dash) {
		return false
	}
	at := e.lineStart(e.withComments(e.lineAt(dash), -1)) + n.Column - 1
	e.add(at, at, items)
	return true
}

// like returns the style of the strings of a list: in quotes if its first item is.
func (e *editor) like(n *yaml.Node) style {
	s := e.style
	if len(n.Content) > 0 {
		s.quotes = n.Content[0].Style & (yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle)
	}
	return s
}

// dashes returns the offsets of the dashes of a list.
func (e *editor) dashes(n *yaml.Node) ([]int, bool) {
	var out []int
	line := n.Line - 1
	for i, item := range n.Content {
		if item.Line < 1 || item.Line > len(e.lines) {
			return nil, false
		}
		at, found := 0, false
		if i == 0 {
			at, found = e.offset(n.Line, n.Column)
			found = found && at < len(e.text) && e.text[at] == '-'
		}
		for l := item.Line - 1; l > line && !found; l-- {
			text := e.line(l)
			if indentOf(text) == n.Column-1 && bytes.HasPrefix(text[n.Column-1:], []byte("-")) {
				at, found = e.lineStart(l)+n.Column-1, true
			}
		}
		if !found {
			return nil, false
		}
		line = e.lineAt(at)
		out = append(out, at)
	}
	return out, true
}

// removeItem removes an item of a list that keeps others, with the comments directly above it.
func (e *editor) removeItem(n *yaml.Node, dashes []int, i, end int) bool {
	if !e.firstColumn(dashes[i]) {
		return false
	}
	line := e.lineAt(dashes[i])
	last, ok := e.contentEnd(n.Content[i], line, end)
	if !ok {
		return false
	}
	limit := -1
	if i > 0 {
		if limit, ok = e.contentEnd(n.Content[i-1], e.lineAt(dashes[i-1]), line); !ok {
			return false
		}
	}
	e.removeLines(e.withComments(line, limit), last, i == 0, i+1 < len(dashes))
	return true
}

// replaceItem replaces an item of a list. It returns false if comments of fields that stay would be
// lost.
func (e *editor) replaceItem(item *yaml.Node, dash int, updated any, indent, end int) bool {
	if losesComments(item, updated) {
		return false
	}
	last, ok := e.contentEnd(item, e.lineAt(dash), end)
	if !ok {
		return false
	}
	e.add(dash, e.lineEnd(last), e.item(updated, indent, e.commentAfter(dash+1, item)))
	return true
}
