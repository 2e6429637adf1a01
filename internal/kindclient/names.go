package kindclient

import (
	"go/token"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// initialisms are parts of names that Go has in upper case.
var initialisms = []string{"API", "CPU", "DNS", "HTTP", "HTTPS", "ID", "IP", "JSON", "SQL", "SSH", "TCP", "TLS",
	"TTL", "UDP", "UID", "URI", "URL", "UUID", "YAML"}

// goName returns the exported Go name of a JSON field.
func goName(field string) string {
	var out strings.Builder
	for _, part := range nameParts(field) {
		if upper := strings.ToUpper(part); slices.Contains(initialisms, upper) {
			out.WriteString(upper)
			continue
		}
		runes := []rune(part)
		out.WriteRune(unicode.ToUpper(runes[0]))
		out.WriteString(string(runes[1:]))
	}
	if name := out.String(); token.IsIdentifier(name) && token.IsExported(name) {
		return name
	}
	return "X" + out.String()
}

// nameParts splits a name at upper case letters that follow others, and at characters that are
// neither letters nor digits.
func nameParts(name string) []string {
	var out strings.Builder
	var before rune
	for _, r := range name {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case unicode.IsUpper(r) && !unicode.IsUpper(before):
			out.WriteByte(' ')
		}
		out.WriteRune(r)
		before = r
	}
	return strings.Fields(out.String())
}

// uniqueName returns a name, with a number at its end if it is taken already, and takes it.
func uniqueName(taken map[string]bool, name string) string {
	out := name
	for i := 2; taken[out]; i++ {
		out = name + strconv.Itoa(i)
	}
	taken[out] = true
	return out
}

// fitsInTag reports whether encoding/json accepts a field name in a struct tag.
func fitsInTag(field string) bool {
	return field != "" && !strings.ContainsFunc(field, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r)
	})
}
