package chart

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Parsed, YAML takes many times its size in memory, and some indexes are large. So an
// index as Helm writes it, in block style, is cut into lines, and the versions of one
// chart are parsed one after the other. Any other YAML is parsed whole, if it is small.
const (
	maxWholeIndex = 1 << 20
	maxJSONIndex  = 4 << 20
	maxIndexItem  = 1 << 18
	maxIndexItems = 10_000
)

// cutter goes through the lines of an index.
type cutter struct {
	name string
	// inside the entries; keys are the indentation of the names of charts, items that of versions.
	inside      bool
	keys, items int
	// wanted is true within the chart, start where the version began that is being read; -1: none.
	wanted, found bool
	start         int
	out           [][]byte
	names         []string
}

// cutIndex cuts the versions of one chart out of an index. ok is false when it is not
// in the form that Helm writes.
func cutIndex(data []byte, name string) (versions [][]byte, names []string, found, ok bool) {
	c := &cutter{name: name, keys: -1, start: -1}
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		more, ok := c.line(data, at, strings.TrimRight(string(data[at:end]), " \r\n"))
		if !ok {
			return nil, nil, false, false
		}
		if !more {
			break
		}
		at = end
	}
	if c.start >= 0 {
		c.out = append(c.out, data[c.start:])
	}
	return c.out, c.names, c.found, c.keys > 0
}

// line takes one more line; more is false after the entries.
func (c *cutter) line(data []byte, at int, text string) (more, ok bool) {
	bare := strings.TrimLeft(text, " ")
	indent := len(text) - len(bare)
	switch {
	case !c.inside:
		c.inside = text == "entries:"
		return true, true
	case bare == "" || bare[0] == '#':
		return true, true
	case bare[0] == '\t':
		return false, false
	case c.keys < 0:
		c.keys = indent
	}
	isItem := bare == "-" || strings.HasPrefix(bare, "- ")
	switch {
	case indent < c.keys || indent == 0:
		c.end(data, at)
		return false, indent == 0 && !isItem
	case indent == c.keys && !isItem:
		c.end(data, at)
		return true, c.key(bare)
	case !c.wanted:
		return true, true
	case c.items < 0 && !isItem:
		return false, false
	case c.items < 0:
		c.items = indent
	}
	if indent == c.items && isItem {
		c.end(data, at)
		c.start = at
	}
	return true, true
}

// end of the version that was being read.
func (c *cutter) end(data []byte, at int) {
	if c.start >= 0 {
		c.out = append(c.out, data[c.start:at])
	}
	c.start = -1
}

// key begins another chart.
func (c *cutter) key(bare string) bool {
	name, plain := strings.CutSuffix(bare, ":")
	if !plain {
		return false
	}
	name = strings.Trim(name, `"'`)
	if len(c.names) < maxIndexNames {
		c.names = append(c.names, name)
	}
	c.wanted, c.items = name == c.name, -1
	if c.wanted && c.found {
		return false // twice: for the parser to refuse
	}
	c.found = c.found || c.wanted
	return true
}

var (
	errForm = fmt.Errorf("it has more than %d bytes and is not in the form that Helm writes", maxWholeIndex)
	errJSON = fmt.Errorf("it has more than %d bytes and is JSON; YAML may be larger", maxJSONIndex)
)

// readVersions parses the versions that were cut out.
func readVersions(items [][]byte) ([]indexEntry, error) {
	if len(items) > maxIndexItems {
		return nil, fmt.Errorf("it has %d versions of the chart; %d are allowed", len(items), maxIndexItems)
	}
	out := make([]indexEntry, 0, len(items))
	for _, item := range items {
		if len(item) > maxIndexItem {
			return nil, fmt.Errorf("a version of the chart has %d bytes in it; %d are allowed", len(item), maxIndexItem)
		}
		var one []indexEntry
		if err := yaml.Unmarshal(item, &one); err != nil {
			return nil, err
		}
		if len(one) != 1 {
			return nil, errors.New("a version of the chart can't be told from the next")
		}
		out = append(out, one[0])
	}
	return slices.Clip(out), nil
}
