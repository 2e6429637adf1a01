// Package document parses YAML and JSON with the same result as kubectl, but strictly: only UTF-8,
// no duplicate keys, and bounded size, depth and alias expansion. Errors have line numbers.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/problem"
)

// Limits of one file.
const (
	MaxDepth = 100
	MaxNodes = 1_000_000
	MaxDocs  = 10_000
)

// Document is one YAML document of a file.
type Document struct {
	// Root is the document's value.
	Root *yaml.Node
	// Line where the document begins.
	Line int
}

// Parse splits a file into documents. It skips empty documents.
func Parse(file string, data []byte) ([]Document, error) {
	if at := invalidUTF8(data); at >= 0 {
		return nil, problem.Errorf(file, 1+bytes.Count(data[:at], []byte("\n")), "the file is not UTF-8")
	}
	var out []Document
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for i := 0; ; i++ {
		var doc yaml.Node
		err := decodeRecovering(decoder, &doc)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			line, text := syntaxError(err)
			return nil, &problem.Error{File: file, Line: line, Message: "this is not valid YAML: " + text, Err: err}
		}
		if i >= MaxDocs {
			return nil, problem.Errorf(file, 0, "the file has more than %d documents", MaxDocs)
		}
		if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
			continue
		}
		root := doc.Content[0]
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			continue
		}
		out = append(out, Document{Root: root, Line: root.Line})
	}
}

// ParseSingle parses a file that must have exactly one document.
func ParseSingle(file string, data []byte) (*yaml.Node, error) {
	docs, err := Parse(file, data)
	if err != nil {
		return nil, err
	}
	switch len(docs) {
	case 0:
		return nil, problem.Errorf(file, 0, "the file is empty")
	case 1:
		return docs[0].Root, nil
	default:
		return nil, problem.Errorf(file, docs[1].Line, "the file must have one YAML document, and this is the second")
	}
}

// decodeRecovering decodes the next document and returns a panic of the parser as an error.
func decodeRecovering(d *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser panicked: %v", r)
		}
	}()
	return d.Decode(into)
}

// syntaxLine matches the line number in a parser error, because the parser has no typed errors.
var syntaxLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?((?s).*)$`)

func syntaxError(err error) (int, string) {
	m := syntaxLine.FindStringSubmatch(err.Error())
	line, _ := strconv.Atoi(m[1])
	return line, strings.TrimSpace(m[2])
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}
