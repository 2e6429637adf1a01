package chart

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of an index, in bytes except maxEntries. Parsed YAML takes many times its size in memory,
// and some indexes are large. So an index in the block style that Helm writes is scanned line by
// line, and the versions of one chart are parsed one by one. Other YAML is parsed as a whole, and
// has a lower limit.
const (
	maxParsedIndex = 1 << 20
	maxJSONIndex   = 4 << 20
	maxEntryBytes  = 1 << 18
	maxEntries     = 10_000
)

// indexScanner scans the lines of an index for the entries of one chart.
type indexScanner struct {
	name string
	// inEntries is true below "entries:". chartIndent and entryIndent are the indentations of chart
	// names and of versions; -1 while unknown.
	inEntries                bool
	chartIndent, entryIndent int
	// inChart is true within the requested chart, found once it was seen. entryStart is the offset
	// of the current version; -1 outside of one.
	inChart, found bool
	entryStart     int
	entries        [][]byte
	chartNames     []string
}

// scanIndex returns the YAML of each version of one chart, and the chart names that it passed. ok
// is false if the index is not in the form that Helm writes.
func scanIndex(data []byte, name string) (versions [][]byte, names []string, found, ok bool) {
	c := &indexScanner{name: name, chartIndent: -1, entryStart: -1}
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		more, ok := c.scanLine(data, at, strings.TrimRight(string(data[at:end]), " \r\n"))
		if !ok {
			return nil, nil, false, false
		}
		if !more {
			break
		}
		at = end
	}
	if c.entryStart >= 0 {
		c.entries = append(c.entries, data[c.entryStart:])
	}
	return c.entries, c.chartNames, c.found, c.chartIndent > 0
}

// scanLine scans the line at offset at; text is the line without trailing white space. more is
// false after the entries.
func (c *indexScanner) scanLine(data []byte, at int, text string) (more, ok bool) {
	bare := strings.TrimLeft(text, " ")
	indent := len(text) - len(bare)
	switch {
	case !c.inEntries:
		c.inEntries = text == "entries:"
		return true, true
	case bare == "" || bare[0] == '#':
		return true, true
	case bare[0] == '\t':
		return false, false
	case c.chartIndent < 0:
		c.chartIndent = indent
	}
	isItem := bare == "-" || strings.HasPrefix(bare, "- ")
	switch {
	case indent < c.chartIndent || indent == 0:
		c.endEntry(data, at)
		return false, indent == 0 && !isItem
	case indent == c.chartIndent && !isItem:
		c.endEntry(data, at)
		return true, c.startChart(bare)
	case !c.inChart:
		return true, true
	case c.entryIndent < 0 && !isItem:
		return false, false
	case c.entryIndent < 0:
		c.entryIndent = indent
	}
	if indent == c.entryIndent && isItem {
		c.endEntry(data, at)
		c.entryStart = at
	}
	return true, true
}

// endEntry ends the current version, if any, at offset at.
func (c *indexScanner) endEntry(data []byte, at int) {
	if c.entryStart >= 0 {
		c.entries = append(c.entries, data[c.entryStart:at])
	}
	c.entryStart = -1
}

// startChart starts the chart of a line with a chart name. It returns false if the line is not in
// the form that Helm writes.
func (c *indexScanner) startChart(bare string) bool {
	name, plain := strings.CutSuffix(bare, ":")
	if !plain {
		return false
	}
	name = strings.Trim(name, `"'`)
	if len(c.chartNames) < maxIndexNames {
		c.chartNames = append(c.chartNames, name)
	}
	c.inChart, c.entryIndent = name == c.name, -1
	if c.inChart && c.found {
		return false // a duplicate: the YAML parser refuses it
	}
	c.found = c.found || c.inChart
	return true
}

var (
	errIndexForm    = fmt.Errorf("larger than %d bytes and not in the form that Helm writes", maxParsedIndex)
	errJSONTooLarge = fmt.Errorf("JSON larger than %d bytes; use YAML, which may be larger", maxJSONIndex)
)

// parseEntries parses the versions that scanIndex returned.
func parseEntries(items [][]byte) ([]indexEntry, error) {
	if len(items) > maxEntries {
		return nil, fmt.Errorf("the chart has %d versions; at most %d are allowed", len(items), maxEntries)
	}
	out := make([]indexEntry, 0, len(items))
	for _, item := range items {
		if len(item) > maxEntryBytes {
			return nil, fmt.Errorf("a version of the chart has %d bytes; at most %d are allowed", len(item),
				maxEntryBytes)
		}
		var one []indexEntry
		if err := yaml.Unmarshal(item, &one); err != nil {
			return nil, err
		}
		if len(one) != 1 {
			return nil, errors.New("the versions of the chart can't be separated")
		}
		out = append(out, one[0])
	}
	return slices.Clip(out), nil
}
