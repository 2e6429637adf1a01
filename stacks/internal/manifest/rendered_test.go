package manifest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// helmSeparator is how Helm finds the documents of a template.
var helmSeparator = regexp.MustCompile(`(?m)^---[ \t]*`)

func TestSplitRenderedSplitsAsHelm(t *testing.T) {
	for _, text := range []string{"", "\n \n", "a", "a\n---\nb", "---\na\n---", "  --- a\n---b\n", "a\n--- # c\nb",
		"------\na", "a\n---\n---\n---\nb", "a: |\n  ---\n  b\n---\tc", "a\n----\nb", "a ---\nb", "---", "---\n---",
		"\n\n---\n\na\n\n"} {
		var got, want []string
		for _, part := range splitRendered(text) {
			got = append(got, strings.TrimSpace(part.text))
		}
		for _, part := range helmSeparator.Split(strings.TrimSpace(text), -1) {
			if part = strings.TrimSpace(part); part != "" {
				want = append(want, part)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, Helm has %q", text, got, want)
		}
	}
}

func TestSplitRenderedCountsLines(t *testing.T) {
	var got []int
	for _, part := range splitRendered("# 0\n---\na: 2\n\n---\n\nb: 6\n--- c: 7\n") {
		got = append(got, part.line)
	}
	if want := []int{0, 2, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
