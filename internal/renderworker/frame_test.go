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

// FuzzReply checks that every output of a worker leads to a result or an error, and that no more
// bytes are read than the limit.
func FuzzReply(f *testing.F) {
	frame := func(v any) []byte {
		var b bytes.Buffer
		if err := writeMessage(&b, v); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(frame(reply{Result: &stacks.Result{Digest: "d",
		Components: []stacks.RenderedComponent{{Name: "c",
			Objects: []stacks.Object{{Manifest: json.RawMessage(`{"a":1}`)}}}}}}))
	f.Add(frame(reply{Problems: stacks.Errors{{File: "f", Line: 1, Message: "no"}}}))
	f.Add(frame(reply{Encrypted: &stacks.EncryptedError{Stack: "s",
		Files: []stacks.EncryptedFile{{Component: "c", File: "a.yaml"}}}}))
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
		if err := readMessage(in, limit, &r); err != nil {
			if !errors.Is(err, errInvalidFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if read := len(data) - in.Len(); read > limit+4 {
			t.Fatalf("%d bytes were read, the limit is %d", read, limit+4)
		}
		res, err := r.toResult()
		if err != nil {
			if _, merr := json.Marshal(res); merr != nil || err.Error() == "" && r.Failure == "" &&
				len(r.Problems) == 0 {
				t.Fatalf("%v and %v", err, merr)
			}
			return
		}
		if _, err := json.Marshal(res); err != nil {
			t.Fatalf("the result cannot be encoded: %v", err)
		}
	})
}

func TestFrameLimitIsEnforced(t *testing.T) {
	var b bytes.Buffer
	if err := writeMessage(&b, strings.Repeat("x", 100)); err != nil {
		t.Fatal(err)
	}
	var s string
	if err := readMessage(bytes.NewReader(b.Bytes()), 102, &s); err != nil || len(s) != 100 {
		t.Errorf("body of exactly the limit: %v", err)
	}
	if err := readMessage(bytes.NewReader(b.Bytes()), 101, &s); !errors.Is(err, errInvalidFrame) {
		t.Errorf("body of one byte more than the limit: %v", err)
	}
	if err := readMessage(bytes.NewReader(b.Bytes()[:50]), 102, &s); !errors.Is(err, errInvalidFrame) {
		t.Errorf("truncated body: %v", err)
	}
}

// A stacks.EncryptedError has the same type and content after it was encoded and decoded.
func TestEncryptedErrorSurvivesEncoding(t *testing.T) {
	want := &stacks.EncryptedError{Stack: "s",
		Files: []stacks.EncryptedFile{{Component: "c", File: "a.yaml"}, {Values: "ConfigMap site, key values.yaml"}}}
	body, err := encodeReply("s", stacks.Result{}, want, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	_, err = r.toResult()
	var got *stacks.EncryptedError
	if !errors.As(err, &got) || !reflect.DeepEqual(got, want) {
		t.Errorf("%T %v", err, err)
	}
}

// A stacks.MissingChartsError has the same type and content after it was encoded and decoded.
func TestMissingChartsErrorSurvivesEncoding(t *testing.T) {
	want := &stacks.MissingChartsError{Stack: "s", Charts: []stacks.ChartRef{{Component: "c", Name: "web"}},
		Trace: map[string]string{"file stack.yaml": "x"}}
	body, err := encodeReply("s", stacks.Result{}, want, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatal(err)
	}
	_, err = r.toResult()
	if got, ok := errors.AsType[*stacks.MissingChartsError](err); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%T %v", err, err)
	}
}

// The output limit also applies to errors.
func TestErrorOutputLimitIsEnforced(t *testing.T) {
	body, err := encodeReply("s", stacks.Result{}, stacks.Errors{{Message: strings.Repeat("x", 1000)}}, 500)
	if err != nil || len(body) > 500 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
}
