package stacks

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestCompressIsReversible(t *testing.T) {
	for _, value := range []string{"", "a", strings.Repeat("object ", 1<<16), "b"} {
		compressed, err := compress(value)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := decompress(compressed, math.MaxInt64, &got); err != nil || got != value {
			t.Errorf("compressing and expanding %d bytes returned %d bytes: %v", len(value), len(got), err)
		}
	}
}

// BenchmarkCompress compresses some kilobytes, the size of most renders.
func BenchmarkCompress(b *testing.B) {
	raw := json.RawMessage("[" + strings.Repeat(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}},`,
		100) + "0]")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compress(raw); err != nil {
			b.Fatal(err)
		}
	}
}
