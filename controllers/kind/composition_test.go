package kind

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestComposition(t *testing.T) {
	for name, c := range map[string]struct {
		// edges are added in this order, as kind>part; the last one closes the cycle.
		edges, existing, cycle string
	}{
		"itself":                {edges: "a>a", cycle: "a a"},
		"no cycle":              {edges: "a>b a>c b>c"},
		"two":                   {edges: "a>b b>a", cycle: "b a b"},
		"three":                 {edges: "a>b b>c c>a", cycle: "c a b c"},
		"a diamond":             {edges: "a>b a>c b>d c>d d>e"},
		"of existing objects":   {edges: "b>a", existing: "a>b", cycle: "b a b"},
		"longer, and existing":  {edges: "c>a", existing: "a>b b>c", cycle: "c a b c"},
		"existing without one":  {edges: "b>a", existing: "a>c"},
		"existing, not of them": {edges: "b>a", existing: "c>b"},
	} {
		t.Run(name, func(t *testing.T) {
			var comp composition
			edges := strings.Fields(c.edges)
			for i, edge := range edges {
				kind, part, _ := strings.Cut(edge, ">")
				cycle, err := comp.add(kind, part, func(kind string) (out []string, _ error) {
					for _, edge := range strings.Fields(c.existing) {
						if part, ok := strings.CutPrefix(edge, kind+">"); ok {
							out = append(out, part)
						}
					}
					return out, nil
				})
				want := ""
				if i == len(edges)-1 {
					want = c.cycle
				}
				if got := strings.Join(cycle, " "); err != nil || got != want {
					t.Errorf("%s: got %q %v, want %q", edge, got, err, want)
				}
			}
		})
	}
}

// An unknown answer is no permission, and a changed stack is read again.
func TestCompositionReads(t *testing.T) {
	var comp composition
	failure := errors.New("no answer")
	if _, err := comp.add("a", "b", func(string) ([]string, error) { return nil, failure }); !errors.Is(err, failure) {
		t.Errorf("got %v", err)
	}
	none := func(string) ([]string, error) { return nil, nil }
	if cycle, err := comp.add("a", "b", none); cycle != nil || err != nil {
		t.Errorf("got %v %v", cycle, err)
	}
	comp.forget("a")
	var read []string
	if cycle, err := comp.add("b", "a", func(kind string) ([]string, error) {
		read = append(read, kind)
		return nil, nil
	}); cycle != nil || err != nil || !slices.Equal(read, []string{"a"}) {
		t.Errorf("got %v %v, read %v", cycle, err, read)
	}
}
