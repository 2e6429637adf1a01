package manifest

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/problem"
)

// ParseRendered parses the objects that a template rendered, as Helm does: of a key that is set
// several times, the last value counts, with a warning. Messages name the lines of the rendered
// text, which is not a file of the user.
func ParseRendered(file, text string) (objects []*Object, warnings []string, err error) {
	var errs problem.Errors
	parts := splitRendered(text)
	if len(parts) > document.MaxDocs {
		return nil, nil, problem.Errorf(file, 0, "the template renders more than %d documents", document.MaxDocs)
	}
	for _, part := range parts {
		convert := func(n *yaml.Node) (map[string]any, error) {
			return document.MapLast(file, n, func(line int, key string) {
				warnings = append(warnings,
					fmt.Sprintf("%s: the key %q is set several times (line %d of the rendered template); its last "+
						"value is used", file, key, part.line+line))
			})
		}
		docs, err := document.Parse(file, []byte(part.text))
		errs.Add(part.locate(err))
		for _, doc := range docs {
			found, err := objectsOf(file, doc.Root, convert)
			errs.Add(part.locate(err))
			objects = append(objects, found...)
		}
	}
	for _, o := range objects {
		o.Line = 0
	}
	slices.Sort(warnings) // the items of a List are converted twice
	return objects, slices.Compact(warnings), errs.Err()
}

// renderedPart is a document of a rendered template.
type renderedPart struct {
	text string
	// line is the number of lines before the document.
	line int
}

// documentStart separates the documents of a rendered template, as in Helm (SplitManifests of
// helm.sh/helm/v4/pkg/release/v1/util): at the beginning of a line, and text may follow.
const documentStart = "---"

// nextDocument returns where the next separator begins and ends in text, which begins a line if
// lineStart is set. It includes spaces and tabs after the dashes.
func nextDocument(text string, lineStart bool) (start, end int, found bool) {
	if !lineStart || !strings.HasPrefix(text, documentStart) {
		i := strings.Index(text, "\n"+documentStart)
		if i < 0 {
			return 0, 0, false
		}
		start = i + 1
	}
	after := text[start+len(documentStart):]
	return start, len(text) - len(strings.TrimLeft(after, " \t")), true
}

// splitRendered splits the text of a template into documents, each of which ends with a newline.
func splitRendered(text string) (parts []renderedPart) {
	counted, line := 0, 0
	add := func(start, end int) {
		doc := strings.TrimLeftFunc(text[start:end], unicode.IsSpace)
		if doc == "" {
			return
		}
		line += strings.Count(text[counted:end-len(doc)], "\n")
		counted = end - len(doc)
		parts = append(parts, renderedPart{text: doc + "\n", line: line})
	}
	// Helm drops leading white space first: an indented --- at the very beginning separates, too.
	start := len(text) - len(strings.TrimLeftFunc(text, unicode.IsSpace))
	for lineStart := true; ; lineStart = false {
		from, to, found := nextDocument(text[start:], lineStart)
		if !found {
			add(start, len(text))
			return parts
		}
		add(start, start+from)
		start += to
	}
}

// locate moves the line numbers of errors to their messages.
func (p renderedPart) locate(err error) error {
	errs := problem.Flatten(err)
	for _, e := range errs {
		if e.Line > 0 {
			e.Message = fmt.Sprintf("%s (line %d of the rendered template)", e.Message, p.line+e.Line)
			e.Line = 0
		}
	}
	return errs.Err()
}
