package manifests

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits of how often a document is edited and parsed again, and of the edits of one pass.
const (
	maxPasses = 100
	maxEdits  = 2000
)

// errNotEditable means that a document cannot be written with the desired value.
var errNotEditable = errors.New("the document cannot be edited in place: edit it by hand")

// editDocument changes the value of a document. The text is that after the marker; newLine is true
// if there is a marker, so that the value must not begin on its line.
func editDocument(text []byte, desired map[string]any, newLine bool) ([]byte, error) {
	if out, ok := splice(text, desired); ok {
		return out, nil
	}
	out, err := reencode(text, desired, newLine)
	if err != nil {
		return nil, err
	}
	if _, got, err := parseValue(out); err != nil || !equal(got, desired) {
		return nil, errNotEditable
	}
	return out, nil
}

// parseValue parses a text with one document that is a mapping.
func parseValue(text []byte) (*yaml.Node, map[string]any, error) {
	roots, err := decodeAll(text)
	if err != nil {
		return nil, nil, err
	}
	if len(roots) != 1 || roots[0].Kind != yaml.MappingNode || anchorLine(roots[0]) > 0 {
		return nil, nil, errNotEditable
	}
	value, err := valueOf(roots[0], 0)
	if err != nil {
		return nil, nil, err
	}
	return roots[0], asMap(value), nil
}

// splice edits a document as text. Edits that would touch another one are left for the next pass,
// so that each pass has a document that can be parsed.
func splice(text []byte, desired map[string]any) ([]byte, bool) {
	if !hasKnownLines(text) {
		return nil, false
	}
	for range maxPasses {
		root, current, err := parseValue(text)
		if err != nil {
			return nil, false
		}
		if equal(current, desired) {
			return text, true
		}
		e := newEditor(text, root)
		if !e.value(root, current, desired, len(e.lines), false) || len(e.edits) == 0 {
			return nil, false
		}
		text = e.apply()
	}
	return nil, false
}

// hasKnownLines returns true if the parser ends lines where the editor does.
func hasKnownLines(text []byte) bool {
	rest := strings.ReplaceAll(string(text), "\r\n", "\n")
	return !strings.ContainsAny(rest, "\r\u0085\u2028\u2029\ufeff\x00")
}

// edit replaces bytes.
type edit struct {
	start, end int
	text       string
}

// editor collects edits of a text, from which root was parsed.
type editor struct {
	style
	text []byte
	// lines are the offsets of the lines.
	lines []int
	edits []edit
}

func newEditor(text []byte, root *yaml.Node) *editor {
	e := &editor{style: styleOf(text, root), text: text, lines: []int{0}}
	for i, b := range text {
		if b == '\n' && i+1 < len(text) {
			e.lines = append(e.lines, i+1)
		}
	}
	return e
}

// add adds an edit, unless it touches another one.
func (e *editor) add(start, end int, text string) {
	if len(e.edits) >= maxEdits {
		return
	}
	for _, other := range e.edits {
		if start <= other.end && other.start <= end {
			return
		}
	}
	e.edits = append(e.edits, edit{start, end, text})
}

func (e *editor) apply() []byte {
	slices.SortFunc(e.edits, func(a, b edit) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, one := range e.edits {
		out = append(append(out, e.text[at:one.start]...), one.text...)
		at = one.end
	}
	return append(out, e.text[at:]...)
}

// offset returns the offset of a position of the parser: the column counts characters.
func (e *editor) offset(line, column int) (int, bool) {
	if line < 1 || line > len(e.lines) || column < 1 {
		return 0, false
	}
	at := e.lines[line-1]
	for range column - 1 {
		if at >= len(e.text) || e.text[at] == '\n' {
			return 0, false
		}
		_, size := utf8.DecodeRune(e.text[at:])
		at += size
	}
	return at, at <= len(e.text)
}

// lineAt returns the index of the line of an offset.
func (e *editor) lineAt(offset int) int {
	i, found := slices.BinarySearch(e.lines, offset)
	if found {
		return i
	}
	return i - 1
}

// lineStart returns the offset of a line by its index, and the end of the text after the last one.
func (e *editor) lineStart(line int) int {
	if line >= len(e.lines) {
		return len(e.text)
	}
	return e.lines[line]
}

// lineEnd returns the offset of the end of a line, before its line break.
func (e *editor) lineEnd(line int) int {
	return e.lineStart(line) + len(e.line(line))
}

// line returns a line without its line break.
func (e *editor) line(line int) []byte {
	text := e.text[e.lineStart(line):e.lineStart(line+1)]
	return bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
}

func isBlank(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }

func isComment(line []byte) bool { return bytes.HasPrefix(bytes.TrimSpace(line), []byte("#")) }

// indentOf returns the number of spaces that a line begins with.
func indentOf(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }

// value changes a node from old to updated. end is the line after those of the node. It returns
// false, and adds no edit, if the node must be replaced as a whole.
func (e *editor) value(n *yaml.Node, old, updated any, end int, flow bool) bool {
	if equal(old, updated) {
		return true
	}
	if !flow && n.Kind != yaml.ScalarNode && len(n.Content) == 0 {
		return false // {} and [] become blocks
	}
	before := len(e.edits)
	done := false
	switch updated := updated.(type) {
	case map[string]any:
		if old, ok := old.(map[string]any); ok && n.Kind == yaml.MappingNode && len(updated) > 0 {
			if flow || n.Style&yaml.FlowStyle != 0 {
				done = e.flowMapping(n, old, updated)
			} else {
				done = e.blockMapping(n, old, updated, end)
			}
		}
	case []any:
		if old, ok := old.([]any); ok && n.Kind == yaml.SequenceNode && len(updated) > 0 {
			if flow || n.Style&yaml.FlowStyle != 0 {
				done = e.flowSequence(n, old, updated)
			} else {
				done = e.blockSequence(n, old, updated, end)
			}
		}
	default:
		done = e.scalar(n, updated, flow)
	}
	if !done {
		e.edits = e.edits[:before]
	}
	return done
}

// scalar replaces a scalar on one line.
func (e *editor) scalar(n *yaml.Node, updated any, flow bool) bool {
	start, end, ok := e.scalarSpan(n)
	if !ok {
		return false
	}
	if v, isText := updated.(string); isText && isLiteral(v) && !flow && n.Style&yaml.DoubleQuotedStyle == 0 {
		return false
	}
	e.add(start, end, e.inline(updated, n.Style, flow))
	return true
}

// scalarSpan returns where a scalar in quotes, or a plain one on one line, begins and ends.
func (e *editor) scalarSpan(n *yaml.Node) (start, end int, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Style&(yaml.TaggedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return 0, 0, false
	}
	if start, ok = e.offset(n.Line, n.Column); !ok {
		return 0, 0, false
	}
	rest := e.text[start:]
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		length := quotedLength(rest)
		return start, start + length, length > 0
	}
	if n.Value == "" || strings.Contains(n.Value, "\n") || !bytes.HasPrefix(rest, []byte(n.Value)) {
		return 0, 0, false
	}
	return start, start + len(n.Value), true
}

// quotedLength returns the length of the string in quotes that a text begins with, or 0.
func quotedLength(text []byte) int {
	if len(text) == 0 || text[0] != '"' && text[0] != '\'' {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[0] == '"' && text[i] == '\\':
			i++
		case text[i] != text[0]:
		case text[0] == '\'' && i+1 < len(text) && text[i+1] == '\'':
			i++
		default:
			return i + 1
		}
	}
	return 0
}
