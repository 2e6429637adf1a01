package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxLines          = 500
	maxCodeColumns    = 120
	maxCommentColumns = 100
	tabColumns        = 4
)

// commentLine matches a comment that has a line of its own and can be broken: prose, and neither a
// single word, such as a URL, nor a directive, which starts with a plus.
var commentLine = regexp.MustCompile(`^\s*// ?[^+\s]\S* \S`)

// checkSize checks the number of lines of a file, unless it is a test, and the width of each line.
// Raw strings do not count: they are data, which may need the width.
func (c *checker) checkSize(name, text string, file *ast.File) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > maxLines && !strings.HasSuffix(name, "_test.go") {
		c.problems = append(c.problems, fmt.Sprintf("%s: %d lines, more than %d", name, len(lines), maxLines))
	}
	for i, line := range c.withoutRawStrings(lines, file) {
		limit := maxCodeColumns
		if commentLine.MatchString(line) {
			limit = maxCommentColumns
		} else if strings.HasPrefix(strings.TrimSpace(line), "//") {
			continue
		}
		if n := columns(line); n > limit {
			c.problems = append(c.problems, fmt.Sprintf("%s:%d: %d columns, more than %d", name, i+1, n, limit))
		}
	}
}

func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}

// withoutRawStrings returns lines of a file without the content of raw strings.
func (c *checker) withoutRawStrings(lines []string, file *ast.File) []string {
	ast.Inspect(file, func(n ast.Node) bool {
		l, ok := n.(*ast.BasicLit)
		if !ok || l.Kind != token.STRING || l.Value[0] != '`' {
			return true
		}
		at := c.files.Position(l.Pos()).Line - 1
		for i, part := range strings.Split(l.Value, "\n") {
			lines[at+i] = strings.Replace(lines[at+i], part, "", 1)
		}
		return true
	})
	return lines
}
