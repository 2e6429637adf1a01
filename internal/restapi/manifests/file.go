package manifests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Limits of one file. Larger ones are not read, or not parsed.
const (
	maxFileBytes  = 16 << 20
	maxParseBytes = 4 << 20
	maxDocuments  = 10_000
)

// segment is the text of one document in a file.
type segment struct {
	// The text begins after the marker "---", and ends before the next one. marker is start for a
	// document without one.
	marker, start, end int
	// root is nil without a value: there are only comments, or null.
	root *yaml.Node
}

func (s segment) text(data []byte) []byte { return data[s.start:s.end] }

func (s segment) hash(data []byte) string {
	sum := sha256.Sum256(s.text(data))
	return hex.EncodeToString(sum[:])
}

// isMarker returns true for a line that is a marker, possibly with more text.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// splitDocuments returns the segments of a file without their values. A marker at the start of a
// line is one in any context: within a quoted string, it is an error.
func splitDocuments(data []byte) []segment {
	out := []segment{{}}
	for at := 0; at < len(data); {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		last := &out[len(out)-1]
		switch line := data[at:next]; {
		case isMarker(line, "---"):
			last.end = at
			out = append(out, segment{marker: at, start: at + len("---")})
		case isMarker(line, "..."):
			last.end = at
			out = append(out, segment{marker: next, start: next})
		}
		at = next
	}
	out[len(out)-1].end = len(data)
	return out
}

// errNotYAML is the error of a file that is not text.
var errNotYAML = errors.New("it is not valid YAML: it is not UTF-8")

// parseFile splits a file into documents and parses each. Documents without a clear beginning are
// an error.
func parseFile(data []byte) ([]segment, error) {
	switch {
	case !utf8.Valid(data):
		return nil, errNotYAML
	case len(data) > maxParseBytes:
		return nil, fmt.Errorf("it has %d bytes, and at most %d can be edited: split the file", len(data),
			maxParseBytes)
	}
	segments, documents := splitDocuments(data), 0
	if len(segments) > maxDocuments {
		return nil, fmt.Errorf("it has more than %d documents: split the file", maxDocuments)
	}
	for i := range segments {
		roots, err := decodeAll(segments[i].text(data))
		if err != nil {
			if _, ofFile := decodeAll(data); ofFile != nil {
				err = ofFile // with the line in the file
			}
			return nil, err
		}
		if len(roots) > 1 {
			return nil, errors.New("it is unclear where its documents begin")
		}
		if len(roots) == 1 {
			segments[i].root = roots[0]
			documents++
		}
	}
	if len(segments) > 1 {
		roots, err := decodeAll(data)
		if err != nil {
			return nil, err
		}
		if len(roots) != documents {
			return nil, errors.New("it is unclear where its documents begin")
		}
	}
	return segments, nil
}

// decodeAll parses a text, and returns the values of its documents other than null.
func decodeAll(data []byte) (out []*yaml.Node, err error) {
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, fmt.Errorf("it is not valid YAML: the parser panicked: %v", v)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is not valid YAML: %s", oneLine(err.Error()))
		}
		if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
			continue
		}
		if root := doc.Content[0]; root.Kind != yaml.ScalarNode || root.ShortTag() != nullTag {
			out = append(out, root)
		}
	}
}
