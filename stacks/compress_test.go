package stacks

import (
	"bytes"
	"testing"
)

func TestCompressIsReversible(t *testing.T) {
	for _, raw := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("object "), 1<<16), []byte("b")} {
		got, err := decompress(compress(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Errorf("compressing and expanding %d bytes returned %d bytes: %v", len(raw), len(got), err)
		}
	}
}

// BenchmarkCompress compresses some kilobytes, the size of most renders.
func BenchmarkCompress(b *testing.B) {
	raw := bytes.Repeat([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`), 100)
	b.ReportAllocs()
	for b.Loop() {
		compress(raw)
	}
}
