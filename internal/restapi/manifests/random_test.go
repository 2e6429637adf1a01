package manifests

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// generator writes random values as YAML in random styles.
type generator struct {
	*rand.Rand
	step, listStep int
	comments       int
}

var randomStrings = []string{"a", "true", "10m", "1e3", "0x10", "", "it's", `say "x"`, "a: b", "# no", "x #y",
	"two\nlines\n",
	"no\nend", "  lead\n", "tail\n\n\n", "ü€😀", "a,b", "{x}", "- x", "null", "~", "2026-01-01", "1:30", "*x",
	"&y", "yes", "%", "@",
	"a\tb", "back\\slash", "\u0085", "x:", ":x", "[", "---", "..."}

func (g *generator) text() string { return randomStrings[g.IntN(len(randomStrings))] }

func (g *generator) value(depth int) any {
	switch n := g.IntN(10); {
	case n < 2 && depth < 4:
		return g.mapping(depth)
	case n < 4 && depth < 4:
		out := make([]any, g.IntN(4))
		for i := range out {
			if g.IntN(2) == 0 {
				out[i] = map[string]any{"name": fmt.Sprint("n", g.IntN(6)), "v": g.value(depth + 1)}
			} else {
				out[i] = g.value(depth + 1)
			}
		}
		return out
	case n == 4:
		return int64(g.IntN(100))
	case n == 5:
		return g.IntN(2) == 0
	case n == 6:
		return []any{nil, 0.5, 1e21, float64(-3)}[g.IntN(4)]
	}
	return g.text()
}

func (g *generator) mapping(depth int) map[string]any {
	out := map[string]any{}
	for range g.IntN(5) {
		key := fmt.Sprint("k", g.IntN(8))
		if g.IntN(8) == 0 {
			key = g.text()
		}
		out[key] = g.value(depth + 1)
	}
	return out
}

// mutate returns a value with random changes.
func (g *generator) mutate(v any, depth int) any {
	if g.IntN(12) == 0 {
		return g.value(depth)
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range sortedKeys(v) {
			if g.IntN(10) > 0 {
				out[k] = g.mutate(v[k], depth+1)
			}
		}
		if g.IntN(4) == 0 {
			out[fmt.Sprint("k", g.IntN(12))] = g.value(depth + 1)
		}
		return out
	case []any:
		var out = []any{}
		for _, item := range v {
			if g.IntN(8) == 0 {
				out = append(out, g.value(depth+1))
			}
			if g.IntN(8) > 0 {
				out = append(out, g.mutate(item, depth+1))
			}
		}
		if g.IntN(5) == 0 {
			out = append(out, g.value(depth+1))
		}
		return out
	}
	return v
}

// change returns a value with other scalars.
func (g *generator) change(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, k := range sortedKeys(v) {
			if out[k] = v[k]; k != "name" {
				out[k] = g.change(v[k])
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = g.change(v[i])
		}
		return out
	}
	if g.IntN(3) > 0 {
		return v
	}
	return []any{g.text(), int64(g.IntN(10)), g.IntN(2) == 0, 0.5, nil}[g.IntN(5)]
}

// comment returns comment lines and blank lines, or nothing.
func (g *generator) comment(indent int) string {
	switch g.IntN(8) {
	case 0:
		g.comments++
		return spaces(indent) + fmt.Sprintf("# comment %d\n", g.comments)
	case 1:
		return "\n"
	}
	return ""
}

func (g *generator) lineComment() string {
	if g.IntN(6) > 0 {
		return ""
	}
	g.comments++
	return fmt.Sprintf("  # comment %d", g.comments)
}

func (g *generator) style() style { return style{step: g.step, listStep: g.listStep, eol: "\n"} }

// write returns the lines of a mapping.
func (g *generator) write(m map[string]any, indent int, first bool) string {
	var b strings.Builder
	keys := sortedKeys(m)
	g.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for i, k := range keys {
		if i > 0 || !first {
			b.WriteString(g.comment(indent) + spaces(indent))
		}
		b.WriteString(g.style().key(k, false) + ":" + g.after(m[k], indent))
	}
	return b.String()
}

func (g *generator) after(v any, indent int) string {
	if g.IntN(6) > 0 {
		switch v := v.(type) {
		case map[string]any:
			if len(v) > 0 {
				return g.lineComment() + "\n" + g.write(v, indent+g.step, false)
			}
		case []any:
			if len(v) > 0 {
				return g.lineComment() + "\n" + g.writeList(v, indent+g.listStep)
			}
		}
	}
	return " " + g.inline(v, indent)
}

func (g *generator) writeList(items []any, indent int) string {
	var b strings.Builder
	for _, item := range items {
		b.WriteString(g.comment(indent) + spaces(indent) + "- ")
		if m, ok := item.(map[string]any); ok && len(m) > 0 && g.IntN(5) > 0 {
			b.WriteString(g.write(m, indent+2, true))
		} else {
			b.WriteString(g.inline(item, indent))
		}
	}
	return b.String()
}

// inline returns a value that begins on the line of its key or dash, with the line break.
func (g *generator) inline(v any, indent int) string {
	s := g.style()
	if text, ok := v.(string); ok && isLiteral(text) && g.IntN(2) == 0 {
		return s.literal(text, indent+g.step, g.lineComment()) + "\n"
	}
	text, isText := v.(string)
	if isText && g.IntN(3) == 0 {
		return quoteText(text) + g.lineComment() + "\n"
	}
	return s.inline(v, 0, false) + g.lineComment() + "\n"
}

// Random changes of random documents are made as text, and are exact.
func TestSetRandomChanges(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	reencoded := 0
	for seed := range rounds {
		g := &generator{Rand: rand.New(rand.NewPCG(uint64(seed), 1))}
		g.step = 2 + 2*g.IntN(2)
		g.listStep = g.step * g.IntN(2)
		value := map[string]any{"apiVersion": "v1", "kind": "Thing", "spec": g.value(0), "data": g.mapping(0),
			"metadata": map[string]any{"name": "web", "namespace": "shop"}}
		desired := asMap(g.mutate(value, 0))
		scalarsOnly := g.IntN(3) == 0
		if scalarsOnly {
			desired = asMap(g.change(value))
		}
		if desired == nil {
			continue
		}
		desired["apiVersion"], desired["kind"], desired["metadata"] = "v1", "Thing", value["metadata"]
		before := otherYAML + "---\n" + g.write(value, 0, true) + "---\n" + otherYAML
		if g.IntN(5) == 0 {
			before = strings.ReplaceAll(before, "\n", "\r\n")
		}
		key := Key{Kind: "Thing", Namespace: "shop", Name: "web"}
		fsys := fstest.MapFS{"all.yaml": {Data: []byte(before)}}
		segments, err := parseFile([]byte(before))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, before)
		}
		doc, err := Find(t.Context(), fsys, ".", key)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, before)
		}
		if !equal(doc.Object.Object, value) {
			t.Fatalf("seed %d: the generator is wrong:\n%s", seed, before)
		}
		files, updated, err := Set(t.Context(), fsys, ".", key, &unstructured.Unstructured{Object: desired})
		if err != nil {
			t.Errorf("seed %d: %v\n%s\n%v", seed, err, before, desired)
			continue
		}
		after, changed := files["all.yaml"]
		if !changed {
			after = []byte(before)
		}
		checkSet(t, []byte(before), after, segments, doc, updated, key, desired)
		if kept := strings.Count(string(after), "# comment"); scalarsOnly && kept != g.comments {
			t.Errorf("seed %d: %d of %d comments are kept:\n%s\n%s", seed, kept, g.comments, before, after)
		}
		if _, ok := splice(segments[1].text([]byte(before)), desired); !ok {
			reencoded++
			t.Logf("seed %d is encoded again:\n%s\n%v", seed, before, desired)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if reencoded > rounds/100 {
		t.Errorf("%d of %d documents are encoded again", reencoded, rounds)
	}
}

// The documents that are not edited as text have the desired value, too.
func TestReencodeRandomChanges(t *testing.T) {
	for seed := range 1000 {
		g := &generator{Rand: rand.New(rand.NewPCG(uint64(seed), 2))}
		g.step = 2 + 2*g.IntN(2)
		g.listStep = g.step * g.IntN(2)
		value := map[string]any{"kind": "Thing", "spec": g.value(0), "data": g.mapping(0)}
		desired := asMap(g.change(value))
		if g.IntN(2) == 0 {
			desired = asMap(g.mutate(value, 0))
		}
		if len(desired) == 0 {
			continue
		}
		before := g.write(value, 0, true)
		after, err := reencode([]byte(before), desired, false)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, before)
		}
		if _, got, err := parseValue(after); err != nil || !equal(got, desired) {
			t.Errorf("seed %d: got %v, want %v: %v\n%s\n%s", seed, got, desired, err, before, after)
		}
	}
}
