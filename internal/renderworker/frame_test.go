package renderworker

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// FuzzReply: whatever a worker writes, who asked it gets a result, or an error; and
// no more is read than is allowed.
func FuzzReply(f *testing.F) {
	frame := func(v any) []byte {
		var b bytes.Buffer
		if err := send(&b, v); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(frame(reply{Result: &stacks.Result{Digest: "d", Components: []stacks.RenderedComponent{{Name: "c", Objects: []stacks.Object{{Manifest: json.RawMessage(`{"a":1}`)}}}}}}))
	f.Add(frame(reply{Problems: stacks.Errors{{File: "f", Line: 1, Message: "no"}}}))
	f.Add(frame(reply{Encrypted: &stacks.EncryptedError{Stack: "s", Files: []stacks.EncryptedFile{{Component: "c", File: "a.yaml"}}}}))
	f.Add(frame(map[string]any{"encrypted": map[string]any{}}))
	f.Add(frame(reply{Failure: "gone"}))
	f.Add(frame(map[string]any{"problems": []any{nil}}))
	f.Add([]byte("\xff\xff\xff\xff{}"))
	f.Add([]byte("\x00\x00\x00\x02"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 1 << 16
		in := bytes.NewReader(data)
		var r reply
		if err := receive(in, limit, &r); err != nil {
			if !errors.Is(err, errFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if read := len(data) - in.Len(); read > limit+4 {
			t.Fatalf("%d bytes were read", read)
		}
		res, err := r.outcome()
		if err != nil {
			if _, merr := json.Marshal(res); merr != nil || err.Error() == "" && r.Failure == "" && len(r.Problems) == 0 {
				t.Fatalf("%v and %v", err, merr)
			}
			return
		}
		if _, err := json.Marshal(res); err != nil {
			t.Fatalf("a result that can't be written: %v", err)
		}
	})
}

func TestFramesAreBounded(t *testing.T) {
	var b bytes.Buffer
	if err := send(&b, strings.Repeat("x", 100)); err != nil {
		t.Fatal(err)
	}
	var s string
	if err := receive(bytes.NewReader(b.Bytes()), 102, &s); err != nil || len(s) != 100 {
		t.Errorf("exactly as long as allowed: %v", err)
	}
	if err := receive(bytes.NewReader(b.Bytes()), 101, &s); !errors.Is(err, errFrame) {
		t.Errorf("a byte more: %v", err)
	}
	if err := receive(bytes.NewReader(b.Bytes()[:50]), 102, &s); !errors.Is(err, errFrame) {
		t.Errorf("broken off: %v", err)
	}
}

// What has to be decrypted is known on the other side as what it is.
func TestEncryptedCrosses(t *testing.T) {
	want := &stacks.EncryptedError{Stack: "s", Files: []stacks.EncryptedFile{{Component: "c", File: "a.yaml"}, {Values: "ConfigMap site, key values.yaml"}}}
	body, err := replyTo("s", stacks.Result{}, want, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	_, err = r.outcome()
	var got *stacks.EncryptedError
	if !errors.As(err, &got) || !reflect.DeepEqual(got, want) {
		t.Errorf("%T %v", err, err)
	}
}

// TestProblemsAreBounded: also errors are output.
func TestProblemsAreBounded(t *testing.T) {
	body, err := replyTo("s", stacks.Result{}, stacks.Errors{{Message: strings.Repeat("x", 1000)}}, 500)
	if err != nil || len(body) > 500 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
}
