package manifests

import (
	"bytes"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// span returns where a node within brackets begins and ends.
func (e *editor) span(n *yaml.Node) (start, end int, ok bool) {
	if n.Kind == yaml.ScalarNode {
		return e.scalarSpan(n)
	}
	if start, ok = e.offset(n.Line, n.Column); !ok || n.Style&yaml.TaggedStyle != 0 {
		return 0, 0, false
	}
	length := bracketsLength(e.text[start:])
	return start, start + length, length > 0
}

// bracketsLength returns the length of the collection in brackets that a text begins with, or 0.
func bracketsLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"', '\'':
			// A quote within a plain scalar is a part of it.
			if !bytes.ContainsRune([]byte(" \t\r\n,{[:"), rune(text[max(i-1, 0)])) {
				continue
			}
			length := quotedLength(text[i:])
			if length == 0 {
				return 0
			}
			i += length - 1
		case '#':
			if i > 0 && bytes.IndexByte([]byte(" \t\n"), text[i-1]) >= 0 {
				length := bytes.IndexByte(text[i:], '\n')
				if length < 0 {
					return 0
				}
				i += length
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return 0
}

// element is an element of a collection in brackets: a key with its value, or an item.
type element struct{ start, end int }

// elements returns the elements of a collection in brackets. step is 2 for a mapping and 1 for a
// list.
func (e *editor) elements(n *yaml.Node, step int) ([]element, bool) {
	var out []element
	for i := 0; i+step <= len(n.Content); i += step {
		start, _, ok := e.span(n.Content[i])
		_, end, okEnd := e.span(n.Content[i+step-1])
		if !ok || !okEnd || end < start {
			return nil, false
		}
		out = append(out, element{start, end})
	}
	return out, len(out) > 0
}

// flowMapping changes a mapping in brackets.
func (e *editor) flowMapping(n *yaml.Node, old, updated map[string]any) bool {
	elements, ok := e.elements(n, 2)
	if !ok {
		return e.replaceBrackets(n, updated)
	}
	if !keepsKey(n, updated) {
		return e.replaceBrackets(n, updated)
	}
	added := ""
	for _, k := range fieldOrder(updated) {
		if _, ok := old[k]; !ok {
			added += e.separator(n, elements) + e.key(k, true) + ": " + e.element(n, elements, updated[k])
		}
	}
	if added != "" {
		last := elements[len(elements)-1].end
		e.add(last, last, added)
	}
	for i := range elements {
		key, value := n.Content[2*i].Value, n.Content[2*i+1]
		v, ok := updated[key]
		if !ok {
			e.removeElement(elements, i)
			continue
		}
		if !e.value(value, old[key], v, 0, true) {
			start, end, _ := e.span(value)
			e.add(start, end, e.element(n, elements, v))
		}
	}
	return true
}

// flowSequence changes a list in brackets.
func (e *editor) flowSequence(n *yaml.Node, old, updated []any) bool {
	elements, ok := e.elements(n, 1)
	if !ok {
		return e.replaceBrackets(n, updated)
	}
	aligned, kept := align(old, updated), false
	for _, p := range aligned {
		kept = kept || p.old >= 0 && p.updated >= 0
	}
	if !kept {
		return e.replaceBrackets(n, updated)
	}
	before, after, previous := "", map[int]string{}, -1
	for _, p := range aligned {
		switch {
		case p.old >= 0:
			previous = p.old
		case previous < 0:
			before += e.element(n, elements, updated[p.updated]) + e.separator(n, elements)
		default:
			after[previous] += e.separator(n, elements) + e.element(n, elements, updated[p.updated])
		}
	}
	if before != "" {
		e.add(elements[0].start, elements[0].start, before)
	}
	for _, i := range slices.Sorted(maps.Keys(after)) {
		e.add(elements[i].end, elements[i].end, after[i])
	}
	for _, p := range aligned {
		switch {
		case p.old < 0:
		case p.updated < 0:
			e.removeElement(elements, p.old)
		case !e.value(n.Content[p.old], old[p.old], updated[p.updated], 0, true):
			start, end, _ := e.span(n.Content[p.old])
			e.add(start, end, e.element(n, elements, updated[p.updated]))
		}
	}
	return true
}

// ownLine returns true if the elements are on lines of their own, and the indentation of the last.
func (e *editor) ownLine(n *yaml.Node, elements []element) (int, bool) {
	last := elements[len(elements)-1].start
	if e.lineAt(last) == n.Line-1 || !e.firstColumn(last) {
		return 0, false
	}
	return indentOf(e.line(e.lineAt(last))), true
}

// separator returns the text between two elements.
func (e *editor) separator(n *yaml.Node, elements []element) string {
	if indent, ok := e.ownLine(n, elements); ok {
		return "," + e.eol + spaces(indent)
	}
	return ", "
}

// element returns a value in the style of the collection.
func (e *editor) element(n *yaml.Node, elements []element, v any) string {
	if indent, ok := e.ownLine(n, elements); ok {
		return e.pretty(v, indent)
	}
	kind := yaml.Style(0)
	if n.Kind == yaml.SequenceNode {
		kind = e.like(n).quotes
	}
	return e.inline(v, kind, true)
}

// removeElement removes an element of a collection that keeps others.
func (e *editor) removeElement(elements []element, i int) {
	if i+1 < len(elements) {
		e.add(elements[i].start, elements[i+1].start, "")
		return
	}
	if i > 0 {
		e.add(elements[i-1].end, elements[i].end, "")
	}
}

// replaceBrackets replaces a collection in brackets that keeps no element, unless comments would be
// lost.
func (e *editor) replaceBrackets(n *yaml.Node, updated any) bool {
	start, end, ok := e.span(n)
	if !ok || losesComments(n, updated) {
		return false
	}
	text := e.inline(updated, 0, true)
	if e.json && bytes.IndexByte(e.text, '\n') >= 0 {
		text = e.pretty(updated, indentOf(e.line(n.Line-1)))
	}
	e.add(start, end, text)
	return true
}
