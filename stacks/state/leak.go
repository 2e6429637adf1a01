package state

import "strings"

// What a text has to have in common with a secret to tell of it, in letters and digits: so
// many in a row, or all of a secret that has at least the fewest.
const (
	quote  = 16
	fewest = 6
)

// Quotes is true when a text, as a stranger's who was sent a file, tells of a secret in that
// file: quotes one, or so much of it that it counts. How it is wrapped, indented or escaped
// makes no difference. It is also true when the file can't be read.
func Quotes(text string, data []byte) bool {
	s, err := plain(data)
	if err != nil {
		return true
	}
	text = letters(text)
	runs := map[string]bool{}
	for i := 0; i+quote <= len(text); i++ {
		runs[text[i:i+quote]] = true
	}
	for _, value := range s.values {
		value = letters(value)
		if len(value) < quote && len(value) >= fewest && strings.Contains(text, value) {
			return true
		}
		for i := 0; i+quote <= len(value); i++ {
			if runs[value[i:i+quote]] {
				return true
			}
		}
	}
	return false
}

// letters are the letters and digits of a text.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, text)
}
