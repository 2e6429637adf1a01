package statestore

import (
	"fmt"
	"strings"
	"unicode"
)

// Said counts states and credentials in words.
func Said(states, credentials int) string {
	clusters, clouds := Plural(states, "state"), "the credentials of "+Plural(credentials, "cloud")
	switch {
	case credentials == 0:
		return clusters
	case states == 0:
		return clouds
	}
	return clusters + " and " + clouds
}

// Plural counts something in words.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Lines are some messages, and how many more there are.
func Lines(messages []string) string {
	const most = 5
	out := strings.Join(messages[:min(len(messages), most)], "; ")
	if more := len(messages) - most; more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}

// Clip keeps the beginning of a text, of so many bytes at most.
func Clip(s string, most int) string { return strings.ToValidUTF8(s[:min(len(s), most)], "") }

// Plain has a question mark for all of a text that can't be printed, that JSON writes in
// several bytes, or that is among others.
func Plain(s, others string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar || strings.ContainsRune("<>&"+others, r) {
			return '?'
		}
		return r
	}, s)
}
