package stacks

import (
	"bytes"
	"testing"
)

func TestCompressIsReversible(t *testing.T) {
	for _, raw := range [][]byte{nil, []byte("a"), bytes.Repeat([]byte("object "), 1<<16), []byte("b")} {
		got, err := expand(compress(raw))
		if err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%d bytes became %d: %v", len(raw), len(got), err)
		}
	}
}

// BenchmarkCompress: a render of some kilobytes, as most are.
func BenchmarkCompress(b *testing.B) {
	raw := bytes.Repeat([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`), 100)
	b.ReportAllocs()
	for b.Loop() {
		compress(raw)
	}
}
