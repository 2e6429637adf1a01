package chart

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

const asHelmWrites = `apiVersion: v1
entries:
  db:
  - apiVersion: v2
    description: |-
      web:
      - version: 9.9.9
    urls: [db.tgz]
    version: 1.0.0
  # between
  "web":
  - annotations:
      x: |
        - version: 8.8.8

        entries:
    digest: "0123"
    urls:
    - a.tgz
    - b.tgz
    version: 2.0.0
  -
    digest: 0x12
    version: 1.5
    description: "over
      two lines"
  zoo: 
  - version: 3.0.0
generated: "2024-01-01T00:00:00Z"
web:
- version: 7.7.7
`

// Cut out or parsed whole, an index says the same.
func TestCutIndex(t *testing.T) {
	want := []indexEntry{{Version: "2.0.0", Digest: "0123", URLs: []string{"a.tgz", "b.tgz"}}, {Version: "1.5", Digest: "0x12"}}
	for name, text := range map[string]string{
		"as Helm writes it": asHelmWrites,
		"with CRLF":         strings.ReplaceAll(asHelmWrites, "\n", "\r\n"),
		"without an end":    strings.SplitN(asHelmWrites, "  zoo", 2)[0],
		"in flow style":     `{"entries": {"web": [{version: 2.0.0, digest: "0123", urls: [a.tgz, b.tgz]}, {version: 1.5, digest: 0x12}]}} # no JSON`,
	} {
		got, _, err := readIndex([]byte(text), "web")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, _, _, ok := cutIndex([]byte(asHelmWrites), "web"); !ok {
		t.Error("what Helm writes was parsed whole")
	}
	_, names, err := readIndex([]byte(asHelmWrites), "wob")
	if err != nil || !reflect.DeepEqual(names, []string{"db", "web", "zoo"}) {
		t.Errorf("%v, %v", names, err)
	}
	for name, text := range map[string]string{
		"twice":                  "entries:\n  web:\n  - version: 1.0.0\n  web:\n  - version: 1.0.0\n",
		"tabs":                   "entries:\n  web:\n\t- version: 1.0.0\n",
		"not a list":             "entries:\n  web:\n    version: 1.0.0\n",
		"large, in another form": "entries: {web: []}\n#" + strings.Repeat("x", maxWholeIndex),
		"large JSON":             `{"entries": {"web": []}}` + strings.Repeat(" ", maxJSONIndex),
		"a large version":        "entries:\n  web:\n  - version: 1.0.0\n    description: " + strings.Repeat("x", maxIndexItem) + "\n",
		"many versions":          "entries:\n  web:\n" + strings.Repeat("  - version: 1.0.0\n", maxIndexItems+1),
	} {
		if got, _, err := readIndex([]byte(text), "web"); err == nil {
			t.Errorf("%s: accepted as %+v", name, got)
		}
	}
}

// An index as large as is allowed, of nothing but small values, costs little memory.
func TestLargeIndexCostsLittle(t *testing.T) {
	var b strings.Builder
	b.WriteString("entries:\n  web:\n  - {version: 1.0.0, digest: x, urls: [y]}\n  other:\n")
	for i := 0; b.Len() < DefaultIndexBytes-100; i++ {
		fmt.Fprintf(&b, "  - [%s]\n", strings.Repeat("a,", 30))
	}
	data := []byte(b.String())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, _, err := readIndex(data, "web")
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	// What was allocated in all, so that nothing depends on when it is collected.
	if used := after.TotalAlloc - before.TotalAlloc; used > 3*DefaultIndexBytes {
		t.Errorf("%d MiB were allocated for an index of %d MiB", used>>20, len(data)>>20)
	}
}
