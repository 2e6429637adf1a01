package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxIgnored bounds what an annotation can make a projection do and keep.
const maxIgnored = 128

const replicasPointer = "/spec/replicas"

// pointers is a set of JSON pointers as a tree of their tokens.
type pointers struct {
	end  bool
	next map[string]*pointers
}

func (p *pointers) add(tokens []string) {
	for _, t := range tokens {
		if p.next == nil {
			p.next = map[string]*pointers{}
		}
		n := p.next[t]
		if n == nil {
			n = &pointers{}
			p.next[t] = n
		}
		p = n
	}
	p.end = true
}

// child is the tree below a token; nil when no pointer goes there.
func (p *pointers) child(token string) *pointers {
	if p == nil {
		return nil
	}
	return p.next[token]
}

// item is the tree below an item of a list.
func (p *pointers) item(i int) *pointers {
	if p == nil || p.next == nil {
		return nil
	}
	return p.next[strconv.Itoa(i)]
}

func (p *pointers) covers() bool { return p != nil && p.end }

// ParseIgnored reads the value of IgnoreAnnotation: a JSON array of at most
// 128 JSON pointers, none of which is the whole object.
func ParseIgnored(annotation string) ([]string, error) {
	if annotation == "" {
		return nil, nil
	}
	var paths []string
	if err := json.Unmarshal([]byte(annotation), &paths); err != nil {
		return nil, fmt.Errorf("ignored paths: %w", err)
	}
	if len(paths) > maxIgnored {
		return nil, fmt.Errorf("ignored paths: %d, at most %d", len(paths), maxIgnored)
	}
	for _, p := range paths {
		if _, err := parsePointer(p); err != nil {
			return nil, fmt.Errorf("ignored path %.100q: %w", p, err)
		}
	}
	return paths, nil
}

func parsePointer(p string) ([]string, error) {
	if !strings.HasPrefix(p, "/") {
		return nil, errors.New("a JSON pointer to a field begins with /")
	}
	tokens := strings.Split(p[1:], "/")
	for i, t := range tokens {
		if !strings.Contains(t, "~") {
			continue
		}
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
	}
	return tokens, nil
}

// lookup finds the value that a pointer leads to.
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
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || i >= len(c) {
				return nil, false
			}
			v = c[i]
		default:
			return nil, false
		}
	}
	return v, true
}
