package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxBytes is the maximum size of a file. The store of ksctl holds 1 MiB, and an export of a few
// hundred clusters has a few MiB.
const MaxBytes = 8 << 20

// maxDepth is the maximum nesting of objects and lists. The documents of ksctl have seven levels.
const maxDepth = 64

// object is a JSON object.
type object = map[string]any

// decode reads one JSON value. It refuses duplicate keys, because programs differ in which of the
// two they use. Errors quote nothing of the file.
func decode(data []byte) (any, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("the file has %d bytes; at most %d are allowed", len(data), MaxBytes)
	}
	d := &decoder{json: json.NewDecoder(bytes.NewReader(data)), data: data, remaining: baseValues +
		len(data)/bytesPerValue}
	d.json.UseNumber()
	v, err := d.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return nil, d.errorAtLine("unexpected content after the JSON document")
	}
	return v, nil
}

type decoder struct {
	json      *json.Decoder
	data      []byte
	remaining int // number of values still allowed
}

// A file may have baseValues values, and one more per bytesPerValue bytes. Documents of ksctl have
// one value per twenty bytes or so. The limit exists because a value takes three bytes in a file,
// and much more in memory.
const (
	baseValues    = 1000
	bytesPerValue = 8
)

// errorAtLine returns an error with the current line.
func (d *decoder) errorAtLine(message string) error {
	read := d.data[:min(d.json.InputOffset(), int64(len(d.data)))]
	return fmt.Errorf("line %d: %s", 1+bytes.Count(read, []byte("\n")), message)
}

func (d *decoder) value(depth int) (any, error) {
	if d.remaining--; d.remaining < 0 {
		return nil, d.errorAtLine("more values than allowed for a file of this size")
	}
	token, err := d.json.Token()
	if err != nil {
		return nil, d.errorAtLine("not JSON") // without err, which quotes the file
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == maxDepth {
		return nil, d.errorAtLine(fmt.Sprintf("more than %d nested objects and lists", maxDepth))
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
	return list, d.closeDelim()
}

func (d *decoder) object(depth int) (any, error) {
	o := object{}
	for d.json.More() {
		token, err := d.json.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, d.errorAtLine("not JSON")
		}
		if _, duplicate := o[key]; duplicate {
			return nil, d.errorAtLine("duplicate key in an object")
		}
		if o[key], err = d.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return o, d.closeDelim()
}

// closeDelim reads the bracket that closes an object or a list.
func (d *decoder) closeDelim() error {
	if _, err := d.json.Token(); err != nil {
		return d.errorAtLine("not JSON")
	}
	return nil
}

// Canonical returns a JSON value in canonical form: sorted keys, no white space, and one notation
// per number. Two documents are equal if their canonical forms are.
func Canonical(data []byte) ([]byte, error) {
	v, err := decode(data)
	if err != nil {
		return nil, err
	}
	return encode(normalize(v))
}

// normalize replaces numbers with a fraction or an exponent by the shortest equal notation, as in
// RFC 8785. Integers stay exact, however large.
func normalize(v any) any {
	switch v := v.(type) {
	case object:
		for key, value := range v {
			v[key] = normalize(value)
		}
	case []any:
		for i, value := range v {
			v[i] = normalize(value)
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

// compact removes the white space of JSON that was decoded before, and changes nothing else.
func compact(data []byte) json.RawMessage {
	var out bytes.Buffer
	if json.Compact(&out, data) != nil {
		return data
	}
	return out.Bytes()
}

// lookup returns the value at a path of keys, or nil.
func lookup(v any, keys ...string) any {
	for _, key := range keys {
		o, _ := v.(object)
		v = o[key]
	}
	return v
}

// stringAt returns the string at a path of keys, or "".
func stringAt(v any, keys ...string) string {
	s, _ := lookup(v, keys...).(string)
	return s
}

// intAt returns the integer at a path of keys; 0 if it is none, negative or above 1<<20.
func intAt(v any, keys ...string) int {
	n, _ := lookup(v, keys...).(json.Number)
	i, err := n.Int64()
	if err != nil || i < 0 || i > 1<<20 {
		return 0
	}
	return int(i)
}

// stringsAt returns the list at a path of keys, with "" for entries that are no strings.
func stringsAt(v any, keys ...string) []string {
	list, _ := lookup(v, keys...).([]any)
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = stringAt(v)
	}
	return out
}

// pointerEscaper escapes a key for a JSON pointer (RFC 6901).
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")
