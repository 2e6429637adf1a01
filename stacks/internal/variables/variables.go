// Package variables substitutes ${name} in objects, as Flux does after a build, one text at a time:
// a value adds nothing to the structure.
package variables

import (
	"bytes"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"github.com/fluxcd/pkg/envsubst/parse"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/problem"
)

// Annotation has the value NotSubstituted on an object in which nothing is substituted.
// FluxAnnotation is that of Flux, with the value fluxDisabled.
const (
	Annotation     = "ksctl.com/substitute"
	NotSubstituted = "false"
	FluxAnnotation = "kustomize.toolkit.fluxcd.io/substitute"
	fluxDisabled   = "disabled"
)

// maxText and maxObject bound a text and an object after the substitution: the API server stores at
// most 1.5 MiB for an object.
const (
	maxText   = 1 << 20
	maxObject = 4 << 20
)

// NamePattern is the pattern of the names of variables, as in Flux.
var NamePattern = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// Variables are the values of variables by name.
type Variables map[string]string

// Substitute returns an object in which the variables are substituted, in keys and values, with
// the functions of envsubst. An unknown variable without a default is an error.
//
// A value that YAML writes without quotes is read again as one scalar, so that it may become a
// number. Labels, annotations and the data of ConfigMaps and Secrets stay text. Those of the
// variables that are secret may be part of a text in the stringData of a Secret only.
func (v Variables) Substitute(object map[string]any, secret sets.Set[string]) (map[string]any, error) {
	metadata, _ := object["metadata"].(map[string]any)
	for _, field := range []string{"annotations", "labels"} {
		marks, _ := metadata[field].(map[string]any)
		if marks[Annotation] == NotSubstituted || marks[FluxAnnotation] == fluxDisabled {
			return object, nil
		}
	}
	isCore, left := object["apiVersion"] == "v1", maxObject
	s := substituter{variables: v, secret: secret, isSecret: isCore && object["kind"] == "Secret",
		isData: isCore && (object["kind"] == "ConfigMap" || object["kind"] == "Secret"), left: &left}
	return s.object(object, nil)
}

type substituter struct {
	variables        Variables
	secret           sets.Set[string]
	isSecret, isData bool
	// left is the number of bytes that the texts of the object may still have.
	left *int
}

func (s substituter) value(value any, path []string) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		return s.object(value, path)
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			var err error
			if out[i], err = s.value(item, append(path, strconv.Itoa(i))); err != nil {
				return nil, err
			}
		}
		return out, nil
	case string:
		text, usesSecret, err := s.text(value, path)
		if err != nil || text == value || usesSecret {
			return text, err
		}
		return s.readAgain(value, text, path), nil
	}
	return value, nil
}

func (s substituter) object(object map[string]any, path []string) (map[string]any, error) {
	out := make(map[string]any, len(object))
	for _, key := range slices.Sorted(maps.Keys(object)) {
		at := slices.Concat(path, []string{key})
		name, usesSecret, err := s.text(key, at)
		if err == nil && usesSecret {
			err = problem.Newf("%s: the key uses a variable from a Secret", dotted(at))
		}
		if err != nil {
			return nil, err
		}
		if _, twice := out[name]; twice {
			return nil, problem.Newf("%s: the key %q is there twice after the substitution", dotted(path), name)
		}
		if out[name], err = s.value(object[key], at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// text substitutes the variables in a text. It reports whether it uses a secret one.
func (s substituter) text(text string, path []string) (out string, usesSecret bool, err error) {
	if !strings.Contains(text, "${") {
		return text, false, nil
	}
	fail := func(format string, args ...any) (string, bool, error) {
		return "", false, problem.Newf(dotted(path)+": "+format, args...)
	}
	const advice = "; $${ is a literal ${, and the annotation " + Annotation + `: "` + NotSubstituted + `"` +
		" leaves the object as it is"
	tree, err := parse.Parse(text)
	if err != nil {
		return fail("the variables in this text cannot be read (%w)"+advice, err)
	}
	if s.variables.bound(tree.Root) > maxText {
		return fail("the text may have more than %d bytes after the substitution", maxText)
	}
	missing, used := "", ""
	out, err = envsubst.Eval(text, func(name string) (string, bool) {
		value, ok := s.variables[name]
		if !ok {
			missing = name
		}
		if s.secret.Has(name) {
			used = name
		}
		return value, ok
	})
	if used != "" && (!s.isSecret || len(path) < 2 || path[0] != "stringData") {
		return fail("the variable %q is from a Secret: it may be part of a text in the stringData of a Secret only; "+
			"or set sensitive: false in the schema of its parameter", used)
	}
	if err != nil {
		failed := problem.Newf("%s: the variable %q is not set, and has no default (${%s:=default})"+advice,
			dotted(path), missing, missing)
		failed.Suggestion = problem.Nearest(missing, slices.Sorted(maps.Keys(s.variables)))
		return "", false, failed
	}
	if *s.left -= len(out); *s.left < 0 {
		return fail("the object has more than %d bytes after the substitution", maxObject)
	}
	return out, used != "", nil
}

// bound returns a length that a text does not exceed after the substitution.
func (v Variables) bound(n parse.Node) int {
	switch n := n.(type) {
	case *parse.TextNode:
		return len(n.Value)
	case *parse.ListNode:
		return v.boundAll(n.Nodes)
	case *parse.FuncNode:
		value, args := len(v[n.Param]), v.boundAll(n.Args)
		if strings.HasPrefix(n.Name, "/") {
			return min((value+1)*(args+1), maxText+1)
		}
		return min(max(20, value, args)*2, maxText+1) // a letter of another case may be longer
	}
	return 0
}

func (v Variables) boundAll(nodes []parse.Node) (sum int) {
	for _, n := range nodes {
		sum = min(sum+v.bound(n), maxText+1)
	}
	return sum
}

// readAgain reads a substituted value again as one scalar, if YAML wrote its template without
// quotes. What is more than a scalar stays text.
func (s substituter) readAgain(template, text string, path []string) any {
	written, err := sigsyaml.Marshal(template)
	if err != nil || bytes.ContainsAny(written[:1], `"'|>`) || strings.ContainsAny(text, "\n\r") {
		return text
	}
	var parsed yaml.Node
	if yaml.Unmarshal([]byte(text), &parsed) != nil {
		return text
	}
	textOnly := s.isTextOnly(path)
	if len(parsed.Content) == 0 { // an empty text, or only a comment
		if text != "" || textOnly {
			return text
		}
		return nil
	}
	node := parsed.Content[0]
	value, err := document.Kubectl.Value("", node)
	_, isText := value.(string)
	if err != nil || !isScalar(&parsed, strings.TrimSpace(text)) || textOnly && !isText {
		return text
	}
	return value
}

// isScalar reports whether a document is one scalar without a comment or an anchor.
func isScalar(parsed *yaml.Node, text string) bool {
	node := parsed.Content[0]
	if node.Kind != yaml.ScalarNode || node.Anchor != "" || node.HeadComment+node.LineComment+node.FootComment != "" ||
		parsed.HeadComment+parsed.FootComment != "" {
		return false
	}
	switch {
	case node.Style&yaml.TaggedStyle != 0:
		return strings.HasPrefix(text, "!!")
	case node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		return text[:1] == text[len(text)-1:] && strings.ContainsAny(text[:1], `"'`)
	}
	return node.Value == text
}

// isTextOnly reports whether Kubernetes takes only text in a field.
func (s substituter) isTextOnly(path []string) bool {
	for _, field := range [][]string{{"metadata", "labels"}, {"metadata", "annotations"}, {"data"}, {"stringData"}} {
		at := len(path) - 1 - len(field)
		if at >= 0 && slices.Equal(path[at:len(path)-1], field) && (len(field) == 2 || s.isData && at == 0) {
			return true
		}
	}
	return false
}

func dotted(path []string) string {
	if len(path) == 0 {
		return "the object"
	}
	return strings.Join(path, ".")
}
