package chart

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

const helmIndex = `apiVersion: v1
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

// The result is the same whether an index is scanned by line or parsed as a whole.
func TestReadIndexInEveryForm(t *testing.T) {
	want := []indexEntry{{Version: "2.0.0", Digest: "0123", URLs: []string{"a.tgz", "b.tgz"}},
		{Version: "1.5", Digest: "0x12"}}
	for name, text := range map[string]string{
		"as Helm writes it": helmIndex,
		"with CRLF":         strings.ReplaceAll(helmIndex, "\n", "\r\n"),
		"ends with entries": strings.SplitN(helmIndex, "  zoo", 2)[0],
		"flow style":        `{"entries": {"web": [{version: 2.0.0, digest: "0123", urls: [a.tgz, b.tgz]}, {version: 1.5, digest: 0x12}]}} # no JSON`,
	} {
		got, _, err := readIndex([]byte(text), "web")
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, _, _, ok := scanIndex([]byte(helmIndex), "web"); !ok {
		t.Error("the index in the form of Helm was not scanned by line")
	}
	_, names, err := readIndex([]byte(helmIndex), "wob")
	if err != nil || !reflect.DeepEqual(names, []string{"db", "web", "zoo"}) {
		t.Errorf("%v, %v", names, err)
	}
	for name, text := range map[string]string{
		"duplicate chart":        "entries:\n  web:\n  - version: 1.0.0\n  web:\n  - version: 1.0.0\n",
		"tabs":                   "entries:\n  web:\n\t- version: 1.0.0\n",
		"not a list":             "entries:\n  web:\n    version: 1.0.0\n",
		"large, not Helm's form": "entries: {web: []}\n#" + strings.Repeat("x", maxParsedIndex),
		"large JSON":             `{"entries": {"web": []}}` + strings.Repeat(" ", maxJSONIndex),
		"a large version": "entries:\n  web:\n  - version: 1.0.0\n    description: " +
			strings.Repeat("x", maxEntryBytes) + "\n",
		"many versions": "entries:\n  web:\n" + strings.Repeat("  - version: 1.0.0\n", maxEntries+1),
	} {
		if got, _, err := readIndex([]byte(text), "web"); err == nil {
			t.Errorf("%s: accepted as %+v", name, got)
		}
	}
}

// Memory stays proportional to the size of an index, also for the largest one with many small
// values.
func TestReadLargeIndexAllocatesLittle(t *testing.T) {
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
	// TotalAlloc counts all allocations, so the result does not depend on garbage collection.
	if used := after.TotalAlloc - before.TotalAlloc; used > 3*DefaultIndexBytes {
		t.Errorf("allocated %d MiB for an index of %d MiB", used>>20, len(data)>>20)
	}
}
