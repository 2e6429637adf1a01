package manifests

import (
	"bytes"

	"go.yaml.in/yaml/v3"
)

// entryEnd returns the line after the region of an entry of a mapping: that of the next key.
func entryEnd(n *yaml.Node, i, end int) int {
	if i+2 < len(n.Content) {
		return n.Content[i+2].Line - 1
	}
	return end
}

// blockMapping changes a mapping in block style.
func (e *editor) blockMapping(n *yaml.Node, old, updated map[string]any, end int) bool {
	if !keepsKey(n, updated) {
		return false
	}
	added := map[string]any{}
	for k, v := range updated {
		if _, ok := old[k]; !ok {
			added[k] = v
		}
	}
	if len(added) > 0 && !e.insertEntries(n, added, end) {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, last := n.Content[i].Value, entryEnd(n, i, end)
		v, kept := updated[key]
		if !kept {
			if !e.removeEntry(n, i, last) {
				return false
			}
			continue
		}
		if !e.value(n.Content[i+1], old[key], v, last, false) && !e.replaceEntry(n, i, v, last) {
			return false
		}
	}
	return true
}

// contentEnd returns the last line of a node that begins in line first, before the line end:
// without the comments and blank lines that follow it.
func (e *editor) contentEnd(n *yaml.Node, first, end int) (int, bool) {
	leaf := n
	for len(leaf.Content) > 0 {
		leaf = leaf.Content[len(leaf.Content)-1]
	}
	if leaf.Kind == yaml.ScalarNode {
		switch {
		case leaf.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
			return e.blockScalarEnd(leaf, end)
		case leaf.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
			_, last, ok := e.scalarSpan(leaf)
			if !ok {
				return 0, false
			}
			first = max(first, e.lineAt(last-1))
		}
	}
	for last := end - 1; last > first; last-- {
		if line := e.line(last); !isBlank(line) && !isComment(line) {
			return last, true
		}
	}
	return first, first < end
}

// blockScalarEnd returns the last line of a literal or folded scalar.
func (e *editor) blockScalarEnd(n *yaml.Node, end int) (int, bool) {
	start, ok := e.offset(n.Line, n.Column)
	if !ok || start >= len(e.text) || e.text[start] != '|' && e.text[start] != '>' {
		return 0, false
	}
	header := e.text[start:e.lineEnd(n.Line-1)]
	if i := bytes.IndexByte(header, ' '); i >= 0 {
		header = header[:i]
	}
	if bytes.ContainsAny(header, "123456789") {
		return 0, false
	}
	indent, last, blank := -1, n.Line-1, n.Line-1
	for i := n.Line; i < end; i++ {
		line := e.line(i)
		if isBlank(line) {
			blank = i
			continue
		}
		if indent < 0 {
			indent = indentOf(line)
		}
		if indentOf(line) < indent || indent == 0 || n.Value == "" {
			break
		}
		last, blank = i, i
	}
	if bytes.IndexByte(header, '+') >= 0 {
		last = max(last, blank)
	}
	return last, true
}

// firstColumn returns true if only spaces precede an offset on its line.
func (e *editor) firstColumn(offset int) bool {
	return isBlank(e.text[e.lineStart(e.lineAt(offset)):offset])
}

// withComments returns the first of the comment lines directly above a line that have its
// indentation. They are after the line limit.
func (e *editor) withComments(line, limit int) int {
	indent := indentOf(e.line(line))
	for line-1 > limit && isComment(e.line(line-1)) && indentOf(e.line(line-1)) == indent {
		line--
	}
	return line
}

// removeEntry removes a key of a mapping that keeps others, with the comments directly above it.
func (e *editor) removeEntry(n *yaml.Node, i, end int) bool {
	key := n.Content[i]
	at, ok := e.offset(key.Line, key.Column)
	if !ok {
		return false
	}
	last, ok := e.contentEnd(n.Content[i+1], key.Line-1, end)
	if !ok {
		return false
	}
	if !e.firstColumn(at) { // after the dash of a list
		if i+2 >= len(n.Content) {
			return false
		}
		next, ok := e.offset(n.Content[i+2].Line, n.Content[i+2].Column)
		if ok {
			e.add(at, next, "")
		}
		return ok
	}
	limit := -1
	if i > 0 {
		if limit, ok = e.contentEnd(n.Content[i-1], n.Content[i-2].Line-1, key.Line-1); !ok {
			return false
		}
	}
	from := key.Line - 1
	if i > 0 || key.Column > 1 { // comments at the top are about the document
		from = e.withComments(from, limit)
	}
	e.removeLines(from, last, i == 0, i+2 < len(n.Content))
	return true
}

// removeLines removes the lines of an entry or item, and the blank lines that would be at the start
// of its collection, or follow other blank lines.
func (e *editor) removeLines(from, last int, isFirst, followed bool) {
	if followed && (isFirst || from > 0 && isBlank(e.line(from-1))) {
		for last+1 < len(e.lines) && isBlank(e.line(last+1)) {
			last++
		}
	}
	e.add(e.lineStart(from), e.lineStart(last+1), "")
}

// insertEntries adds keys at the end of a mapping.
func (e *editor) insertEntries(n *yaml.Node, added map[string]any, end int) bool {
	count := len(n.Content)
	if count == 0 {
		return false
	}
	last, ok := e.contentEnd(n.Content[count-1], n.Content[count-2].Line-1, end)
	if !ok {
		return false
	}
	indent := n.Content[0].Column - 1
	e.add(e.lineEnd(last), e.lineEnd(last), e.eol+spaces(indent)+e.mapping(added, indent))
	return true
}

// replaceEntry replaces the value of a key. It returns false if comments of fields that stay would
// be lost.
func (e *editor) replaceEntry(n *yaml.Node, i int, updated any, end int) bool {
	key, value := n.Content[i], n.Content[i+1]
	_, at, ok := e.scalarSpan(key)
	if !ok || losesComments(value, updated) {
		return false
	}
	for at < len(e.text) && e.text[at] == ' ' {
		at++
	}
	if at >= len(e.text) || e.text[at] != ':' {
		return false
	}
	at++
	last, ok := e.contentEnd(value, key.Line-1, end)
	if !ok {
		return false
	}
	e.add(at, e.lineEnd(last), e.afterColon(updated, key.Column-1, e.commentAfter(at, value)))
	return true
}

// commentAfter returns the comment on the line of a key or dash, with the spaces before it. colon
// is the offset after that.
func (e *editor) commentAfter(colon int, value *yaml.Node) string {
	line := e.lineAt(colon)
	rest := e.text[colon:e.lineEnd(line)]
	switch start, end, ok := e.span(value); {
	case ok && e.lineAt(start) == line && e.lineAt(end-1) == line:
		rest = e.text[end:e.lineEnd(line)]
	case value.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		rest = bytes.TrimLeft(rest, " |>+-0123456789")
		if len(rest) > 0 {
			rest = append([]byte(" "), rest...)
		}
	case value.Line-1 == line && value.Value != "":
		return ""
	}
	if !isComment(rest) {
		return ""
	}
	return string(bytes.TrimRight(rest, " \t"))
}

// keepsKey returns true if a mapping and its replacement have a key in common.
func keepsKey(n *yaml.Node, updated map[string]any) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if _, ok := updated[n.Content[i].Value]; ok {
			return true
		}
	}
	return false
}

// losesComments returns true if a collection has comments within it, and another one replaces it.
func losesComments(n *yaml.Node, updated any) bool {
	switch updated := updated.(type) {
	case map[string]any:
		return n.Kind == yaml.MappingNode && keepsKey(n, updated) && hasInnerComments(n)
	case []any:
		return n.Kind == yaml.SequenceNode && len(updated) > 0 && hasInnerComments(n)
	}
	return false
}

// hasInnerComments returns true if a collection has comments within it.
func hasInnerComments(n *yaml.Node) bool {
	for _, c := range n.Content {
		if c.HeadComment != "" || c.LineComment != "" || c.FootComment != "" || hasInnerComments(c) {
			return true
		}
	}
	return false
}
