package live

import (
	"strings"
	"testing"
)

func readAll(text string) (items []string, rv, next string, err error) {
	meta, err := readPage(strings.NewReader(text), func(raw []byte) error {
		items = append(items, string(raw))
		return nil
	})
	return items, meta.ResourceVersion, meta.Continue, err
}

func TestReadPage(t *testing.T) {
	for _, text := range []string{
		`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"c"},"items":[{"a":1},{"b":[2]}]}`,
		`{"items":[{"a":1},{"b":[2]}],"extra":{"x":[1,{"y":2}]},"metadata":{"continue":"c","resourceVersion":"7"}}`,
	} {
		items, rv, next, err := readAll(text)
		if err != nil || strings.Join(items, " ") != `{"a":1} {"b":[2]}` || rv != "7" || next != "c" {
			t.Errorf("%s: %q, %q, %q, %v", text, items, rv, next, err)
		}
	}
	for _, text := range []string{`{"metadata":{"resourceVersion":"7"},"items":null}`,
		`{"metadata":{"resourceVersion":"7"},"items":[]}`, `{"metadata":{"resourceVersion":"7"}}`} {
		if items, rv, _, err := readAll(text); err != nil || len(items) != 0 || rv != "7" {
			t.Errorf("%s: %q, %q, %v", text, items, rv, err)
		}
	}
}

// A truncated page is an error, never a shorter page.
func TestReadPageRejectsTruncatedOrMalformed(t *testing.T) {
	whole := `{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b":2}]}`
	for i := range len(whole) {
		if items, _, _, err := readAll(whole[:i]); err == nil {
			t.Errorf("%s was read as %q", whole[:i], items)
		}
	}
	for _, text := range []string{`[]`, `1`, `{"items":{}}`, `{"items":1}`, `{"metadata":[]}`, `{"items":[}`} {
		if items, _, _, err := readAll(text); err == nil {
			t.Errorf("%s was read as %q", text, items)
		}
	}
}
