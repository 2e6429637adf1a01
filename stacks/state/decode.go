package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxBytes is the largest file that is read: ksctl's own store holds 1 MiB, and an
// export of some hundred clusters is a few.
const MaxBytes = 8 << 20

// maxDepth of objects and lists in each other; ksctl's documents have seven.
const maxDepth = 64

// object is a JSON object.
type object = map[string]any

// decode reads one JSON value. A key that comes twice is refused: programs differ
// in which of the two they believe. Errors quote nothing of the file.
func decode(data []byte) (any, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", len(data), MaxBytes)
	}
	d := &decoder{json: json.NewDecoder(bytes.NewReader(data)), data: data, left: fewestValues + len(data)/bytesPerValue}
	d.json.UseNumber()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return nil, d.fail("there is something after the JSON document")
	}
	return v, nil
}

type decoder struct {
	json *json.Decoder
	data []byte
	left int // values that may come
}

// A file may have so many values, and one more for so many bytes: those of ksctl have one for
// some twenty. Each takes much more in memory than the three bytes that it can be written in.
const (
	fewestValues  = 1000
	bytesPerValue = 8
)

// fail says where the decoder stands.
func (d *decoder) fail(why string) error {
	read := d.data[:min(d.json.InputOffset(), int64(len(d.data)))]
	return fmt.Errorf("line %d: %s", 1+bytes.Count(read, []byte("\n")), why)
}

func (d *decoder) value(depth int) (any, error) {
	if d.left--; d.left < 0 {
		return nil, d.fail("it has more values than a state of its size could have")
	}
	token, err := d.json.Token()
	if err != nil {
		return nil, d.fail("not JSON") // the decoder's own words quote what is there
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == maxDepth {
		return nil, d.fail(fmt.Sprintf("more than %d objects and lists in each other", maxDepth))
	}
	if delim == '{' {
		return d.object(depth)
	}
	list := []any{}
	for d.json.More() {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, d.end()
}

func (d *decoder) object(depth int) (any, error) {
	o := object{}
	for d.json.More() {
		token, err := d.json.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, d.fail("not JSON")
		}
		if _, twice := o[key]; twice {
			return nil, d.fail("a key comes twice in one object")
		}
		if o[key], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return o, d.end()
}

// end takes the bracket that closes an object or a list.
func (d *decoder) end() error {
	if _, err := d.json.Token(); err != nil {
		return d.fail("not JSON")
	}
	return nil
}

// Canonical is a JSON value in one form: keys sorted, no white space, each number written
// in one way. Two documents are equal when these bytes are.
func Canonical(data []byte) ([]byte, error) {
	v, err := decode(data)
	if err != nil {
		return nil, err
	}
	return encode(normal(v))
}

// normal writes every number that is no whole one as the shortest that means the same,
// as RFC 8785 has it; whole ones are exact, however large.
func normal(v any) any {
	switch v := v.(type) {
	case object:
		for key, value := range v {
			v[key] = normal(value)
		}
	case []any:
		for i, value := range v {
			v[i] = normal(value)
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			if whole := int64(f); f == float64(whole) && whole > -1<<53 && whole < 1<<53 {
				return whole
			}
			return f
		}
	}
	return v
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// compact is JSON without white space, otherwise as it is.
func compact(data []byte) (json.RawMessage, error) {
	var out bytes.Buffer
	err := json.Compact(&out, data)
	return out.Bytes(), err
}

// at is what a path of keys leads to; nil where there is nothing.
func at(v any, keys ...string) any {
	for _, key := range keys {
		o, _ := v.(object)
		v = o[key]
	}
	return v
}

// text that a path of keys leads to.
func text(v any, keys ...string) string {
	s, _ := at(v, keys...).(string)
	return s
}

// number that a path of keys leads to, if it is a whole one.
func number(v any, keys ...string) int {
	n, _ := at(v, keys...).(json.Number)
	i, err := n.Int64()
	if err != nil || i < 0 || i > 1<<20 {
		return 0
	}
	return int(i)
}

// texts is a list that a path of keys leads to, with "" for what is no string.
func texts(v any, keys ...string) []string {
	list, _ := at(v, keys...).([]any)
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = text(v)
	}
	return out
}

// pointer escapes a key for a JSON pointer (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
