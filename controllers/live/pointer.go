package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// maxIgnoredPaths bounds the work and the memory that an IgnoreAnnotation causes.
const maxIgnoredPaths = 128

// ignoredPath is an ignored field of an object.
type ignoredPath struct {
	// pointer is the path in the rule.
	pointer string
	// tokens are the tokens of the field in the object. Items of lists have their indexes.
	tokens []string
	// keys locate the field in a manifest, as KeptField.At does. They are nil if pointer does so.
	keys []string
}

var replicasPath = ignoredPath{pointer: "/spec/replicas", tokens: []string{"spec", "replicas"}}

// pointers is a set of JSON pointers as a tree of their tokens.
type pointers struct {
	terminal bool
	children map[string]*pointers
}

func (p *pointers) add(tokens []string) {
	for _, t := range tokens {
		if p.children == nil {
			p.children = map[string]*pointers{}
		}
		n := p.children[t]
		if n == nil {
			n = &pointers{}
			p.children[t] = n
		}
		p = n
	}
	p.terminal = true
}

// child returns the tree below a token; nil if no pointer continues there.
func (p *pointers) child(token string) *pointers {
	if p == nil {
		return nil
	}
	return p.children[token]
}

// item returns the tree below an item of a list; nil if no pointer continues there.
func (p *pointers) item(i int) *pointers {
	if p == nil || p.children == nil {
		return nil
	}
	return p.children[strconv.Itoa(i)]
}

func (p *pointers) covers() bool { return p != nil && p.terminal }

// parseIgnoreAnnotation parses the value of IgnoreAnnotation: a JSON array of at most 128 JSON
// pointers. The empty pointer, which means the whole object, is invalid.
func parseIgnoreAnnotation(annotation string) ([]string, error) {
	if annotation == "" {
		return nil, nil
	}
	var paths []string
	if err := json.Unmarshal([]byte(annotation), &paths); err != nil {
		return nil, fmt.Errorf("ignored paths: %w", err)
	}
	if len(paths) > maxIgnoredPaths {
		return nil, fmt.Errorf("ignored paths: %d, at most %d", len(paths), maxIgnoredPaths)
	}
	for _, p := range paths {
		if _, err := ParsePointer(p); err != nil {
			return nil, fmt.Errorf("ignored path %.100q: %w", p, err)
		}
	}
	return paths, nil
}

// parseIgnored returns the paths in the value of IgnoreAnnotation; nil if the value is invalid.
func parseIgnored(annotation string) []ignoredPath {
	paths, err := parseIgnoreAnnotation(annotation)
	if err != nil {
		return nil
	}
	var out []ignoredPath
	for _, p := range paths {
		tokens, _ := ParsePointer(p) // each is valid
		out = append(out, ignoredPath{pointer: p, tokens: tokens})
	}
	return out
}

// ParsePointer splits a JSON pointer to a field into its unescaped tokens.
func ParsePointer(pointer string) ([]string, error) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, errors.New("a JSON pointer to a field has to begin with /")
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// FormatPointer returns the JSON pointer with these tokens.
func FormatPointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(t, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// lookup returns the value at a pointer.
func lookup(v any, tokens []string) (any, bool) {
	for _, t := range tokens {
		switch c := v.(type) {
		case map[string]any:
			next, ok := c[t]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i := FindItem(c, t)
			if i < 0 {
				return nil, false
			}
			v = c[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// PreventDeletionAnnotation with the value "true" prevents the controllers from deleting the
// object, whoever requests the deletion.
const PreventDeletionAnnotation = "ksctl.com/prevent-deletion"

// HelmPolicyAnnotation with the value "keep" makes helm uninstall keep an object
// (https://helm.sh/docs/howto/charts_tips_and_tricks).
const HelmPolicyAnnotation = "helm.sh/resource-policy"

// IsKeptByHelm reports whether a value of HelmPolicyAnnotation keeps an object.
func IsKeptByHelm(policy string) bool { return strings.EqualFold(strings.TrimSpace(policy), "keep") }

// AdoptedAnnotation is on objects that existed before they were managed. A removal releases them
// instead of deleting them.
const AdoptedAnnotation = "ksctl.com/adopted"

// ValueAt returns the JSON of the field at a JSON pointer, such as KeptField.At; nil when the field
// is absent. It fails if the pointer is invalid.
func ValueAt(u *unstructured.Unstructured, pointer string) (json.RawMessage, error) {
	tokens, err := ParsePointer(pointer)
	if err != nil {
		return nil, err
	}
	v, ok := lookup(u.Object, tokens)
	if !ok {
		return nil, nil
	}
	return json.Marshal(v)
}
