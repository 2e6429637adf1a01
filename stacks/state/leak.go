package state

import "strings"

// A text leaks a secret if the two have minLeakRun consecutive letters and digits in common, or if
// the text contains a whole shorter secret of at least minSecretLength letters and digits.
const (
	minLeakRun      = 16
	minSecretLength = 6
)

// LeaksSecret is true if a text contains a secret of a file, or a substantial part of one. The text
// is that of an untrusted receiver of the file, such as an error message. Wrapping, indentation and
// escaping make no difference. It is also true if the file can't be parsed.
func LeaksSecret(text string, data []byte) bool {
	tree, err := decode(data)
	if err != nil {
		return true
	}
	text = alphanumeric(text)
	runs := map[string]bool{}
	for i := 0; i+minLeakRun <= len(text); i++ {
		runs[text[i:i+minLeakRun]] = true
	}
	for _, l := range leaves(tree) {
		if !l.isPlainSecret() {
			continue
		}
		value := alphanumeric(l.text())
		if len(value) < minLeakRun && len(value) >= minSecretLength && strings.Contains(text, value) {
			return true
		}
		for i := 0; i+minLeakRun <= len(value); i++ {
			if runs[value[i:i+minLeakRun]] {
				return true
			}
		}
	}
	return false
}

// alphanumeric returns the ASCII letters and digits of a text.
func alphanumeric(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, text)
}
