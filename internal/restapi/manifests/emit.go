package manifests

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// style is how a document is written.
type style struct {
	// step is the number of spaces per level. listStep is that of a list in a mapping, often 0.
	step, listStep int
	eol            string
	// json is true for strings and keys in double quotes.
	json bool
	// quotes is the style of the items of a list.
	quotes yaml.Style
}

// defaultStyle is that of kubectl.
func defaultStyle() style { return style{step: 2, eol: "\n"} }

// styleOf returns the style of a document.
func styleOf(text []byte, root *yaml.Node) style {
	s := defaultStyle()
	if i := strings.IndexByte(string(text), '\n'); i > 0 && text[i-1] == '\r' {
		s.eol = "\r\n"
	}
	s.json = root.Style&yaml.FlowStyle != 0 && len(root.Content) > 0 &&
		root.Content[0].Style&yaml.DoubleQuotedStyle != 0
	var foundStep, foundList bool
	var visit func(n *yaml.Node)
	visit = func(n *yaml.Node) {
		for i, c := range n.Content {
			if n.Kind == yaml.MappingNode && i%2 == 1 && c.Style&yaml.FlowStyle == 0 && c.Line > n.Content[i-1].Line {
				indent := c.Column - n.Content[i-1].Column
				switch {
				case c.Kind == yaml.MappingNode && !foundStep && indent > 0:
					s.step, foundStep = indent, true
				case c.Kind == yaml.SequenceNode && !foundList && indent >= 0:
					s.listStep, foundList = indent, true
				}
			}
			visit(c)
		}
	}
	visit(root)
	if s.json {
		s.step = jsonStep(root)
	}
	return s
}

// jsonStep returns the indentation of the first key on a line of its own.
func jsonStep(root *yaml.Node) int {
	if first := root.Content[0]; first.Line > root.Line && first.Column > 1 && first.Column < 10 {
		return first.Column - 1
	}
	return defaultStyle().step
}

// firstKeys are the keys that come first in new mappings. The others follow in order.
var firstKeys = []string{"apiVersion", "kind", "metadata", "name", "namespace"}

// fieldOrder returns the keys of a mapping in the order in which they are written.
func fieldOrder(m map[string]any) []string {
	var out []string
	for _, k := range firstKeys {
		if _, ok := m[k]; ok {
			out = append(out, k)
		}
	}
	for _, k := range sortedKeys(m) {
		if !slices.Contains(firstKeys, k) {
			out = append(out, k)
		}
	}
	return out
}

func spaces(n int) string { return strings.Repeat(" ", max(n, 0)) }

// mapping returns the lines of a mapping, the first without its indentation.
func (s style) mapping(m map[string]any, indent int) string {
	s.quotes = 0
	var lines []string
	for _, k := range fieldOrder(m) {
		lines = append(lines, s.entry(k, m[k], indent))
	}
	return strings.Join(lines, s.eol+spaces(indent))
}

// entry returns a key and its value, the first line without its indentation.
func (s style) entry(key string, v any, indent int) string {
	return s.key(key, false) + ":" + s.afterColon(v, indent, "")
}

// afterColon returns the value of a key with the given indentation. comment follows on the line of
// the key.
func (s style) afterColon(v any, indent int, comment string) string {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 {
			return comment + s.eol + spaces(indent+s.step) + s.mapping(v, indent+s.step)
		}
	case []any:
		if len(v) > 0 {
			at := indent + s.listStep
			return comment + s.eol + spaces(at) + s.list(v, at)
		}
	case string:
		if isLiteral(v) {
			return " " + s.literal(v, indent+s.step, comment)
		}
	}
	return " " + s.inline(v, 0, false) + comment
}

// list returns the lines of a list, the first without its indentation.
func (s style) list(items []any, indent int) string {
	lines := make([]string, len(items))
	for i, item := range items {
		lines[i] = s.item(item, indent, "")
	}
	return strings.Join(lines, s.eol+spaces(indent))
}

// item returns an item of a list with its dash, the first line without its indentation. A scalar is
// followed by comment.
func (s style) item(v any, indent int, comment string) string {
	indent += len("- ")
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 {
			return "- " + s.mapping(v, indent)
		}
	case []any:
		if len(v) > 0 {
			return "- " + s.list(v, indent)
		}
	case string:
		if isLiteral(v) {
			return "- " + s.literal(v, indent, comment)
		}
	}
	return "- " + s.inline(v, s.quotes, false) + comment
}

// isLiteral returns true for a text that is written as a literal block.
func isLiteral(v string) bool {
	trimmed := strings.TrimSuffix(v, "\n")
	if !strings.Contains(v, "\n") || trimmed == "" || strings.HasSuffix(trimmed, "\n") ||
		strings.HasPrefix(v, " ") || strings.HasPrefix(v, "\t") || strings.HasPrefix(v, "\n") {
		return false
	}
	return !strings.ContainsFunc(v, func(r rune) bool { return r != '\n' && r != '\t' && !isPrintable(r) })
}

// isPrintable is false for characters that are escaped.
func isPrintable(r rune) bool {
	return unicode.IsPrint(r) && r != utf8.RuneError && r != '\u0085' && r != '\u2028' && r != '\u2029' && r != '\ufeff'
}

func (s style) literal(v string, indent int, comment string) string {
	header := "|"
	if !strings.HasSuffix(v, "\n") {
		header = "|-"
	}
	var b strings.Builder
	b.WriteString(header + comment)
	for line := range strings.SplitSeq(strings.TrimSuffix(v, "\n"), "\n") {
		b.WriteString(s.eol)
		if line != "" {
			b.WriteString(spaces(indent) + line)
		}
	}
	return b.String()
}

// inline returns a value on one line. kind is the style of the replaced value, and flow is true
// within brackets.
func (s style) inline(v any, kind yaml.Style, flow bool) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return s.text(v, kind, flow)
	case map[string]any:
		fields := make([]string, 0, len(v))
		for _, k := range fieldOrder(v) {
			fields = append(fields, s.key(k, true)+": "+s.inline(v[k], 0, true))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case []any:
		items := make([]string, len(v))
		for i := range v {
			items[i] = s.inline(v[i], 0, true)
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return ""
}

func (s style) key(k string, flow bool) string { return s.text(k, 0, flow) }

// text returns a string in the style of the replaced one if possible.
func (s style) text(v string, kind yaml.Style, flow bool) string {
	printable := !strings.ContainsFunc(v, func(r rune) bool { return !isPrintable(r) })
	switch {
	case s.json || kind&yaml.DoubleQuotedStyle != 0 || !printable:
	case kind&yaml.SingleQuotedStyle != 0:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	case isPlain(v, flow):
		return v
	}
	return quoteText(v)
}

// isPlain returns true for a string that needs no quotes in any version of YAML.
func isPlain(v string, flow bool) bool {
	if v == "" || flow && strings.ContainsAny(v, ",[]{}:#\"'") {
		return false
	}
	encoded, err := yaml.Marshal(v)
	return err == nil && string(encoded) == v+"\n"
}

// quoteText returns a string in double quotes, with escapes that JSON has, too.
func quoteText(v string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range v {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r > 0xffff || isPrintable(r):
			b.WriteRune(r)
		default:
			digits := strconv.FormatInt(int64(r), 16)
			b.WriteString(`\u` + strings.Repeat("0", 4-len(digits)) + digits)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// pretty returns a value within brackets, with each field on a line of its own.
func (s style) pretty(v any, indent int) string {
	inner := s.eol + spaces(indent+s.step)
	var parts []string
	open, end := "{", "}"
	switch v := v.(type) {
	case map[string]any:
		for _, k := range fieldOrder(v) {
			parts = append(parts, s.key(k, true)+": "+s.pretty(v[k], indent+s.step))
		}
	case []any:
		open, end = "[", "]"
		for _, item := range v {
			parts = append(parts, s.pretty(item, indent+s.step))
		}
	}
	if len(parts) == 0 {
		return s.inline(v, 0, true)
	}
	return open + inner + strings.Join(parts, ","+inner) + s.eol + spaces(indent) + end
}
