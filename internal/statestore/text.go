package statestore

import (
	"fmt"
	"strings"
	"unicode"
)

// CountSummary returns the numbers of states and credentials as text.
func CountSummary(states, credentials int) string {
	stateCount, credentialCount := Plural(states, "state"), "the credentials of "+Plural(credentials, "cloud")
	switch {
	case credentials == 0:
		return stateCount
	case states == 0:
		return credentialCount
	}
	return stateCount + " and " + credentialCount
}

// Plural returns a number and a noun, in the plural if the number is not 1.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// JoinMessages joins the first messages, and counts the others.
func JoinMessages(messages []string) string {
	const maxMessages = 5
	out := strings.Join(messages[:min(len(messages), maxMessages)], "; ")
	if more := len(messages) - maxMessages; more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}

// Truncate returns the beginning of a text, of at most so many bytes, without invalid UTF-8.
func Truncate(s string, maxBytes int) string {
	return strings.ToValidUTF8(s[:min(len(s), maxBytes)], "")
}

// Sanitize replaces characters of a text with a question mark: those that are not printable, those
// that JSON escapes to several bytes, and those in others.
func Sanitize(s, others string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar || strings.ContainsRune("<>&"+others, r) {
			return '?'
		}
		return r
	}, s)
}
