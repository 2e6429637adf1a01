package expr

import "strings"

// namespaceVariable is the variable namespace in compiled expressions: CEL reserves that name. It
// is as long, so that positions in messages stay right.
const namespaceVariable = "namespac_"

// renameNamespace renames the variable namespace in an expression. Texts, comments and fields of
// that name stay.
func renameNamespace(source string) string {
	const name = "namespace"
	if !strings.Contains(source, name) {
		return source
	}
	var out strings.Builder
	for i := 0; i < len(source); {
		end := i + 1
		switch c := source[i]; {
		case strings.HasPrefix(source[i:], "//"):
			end = endOf(source, i, "\n", false)
		case c == '"' || c == '\'':
			quote := source[i : i+1]
			if triple := strings.Repeat(quote, 3); strings.HasPrefix(source[i:], triple) {
				quote = triple
			}
			isRaw := i > 0 && (source[i-1] == 'r' || source[i-1] == 'R')
			end = endOf(source, i+len(quote), quote, !isRaw)
		case isIdentifier(c):
			for end < len(source) && isIdentifier(source[end]) {
				end++
			}
			isField := strings.HasSuffix(strings.TrimRight(source[:i], " \t\r\n?"), ".")
			if source[i:end] == name && !isField {
				out.WriteString(namespaceVariable)
				i = end
				continue
			}
		}
		out.WriteString(source[i:end])
		i = end
	}
	return out.String()
}

// endOf returns the position after the next terminator.
func endOf(source string, from int, terminator string, escapes bool) int {
	for i := from; i < len(source); i++ {
		switch {
		case escapes && source[i] == '\\':
			i++
		case strings.HasPrefix(source[i:], terminator):
			return i + len(terminator)
		}
	}
	return len(source)
}

func isIdentifier(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
