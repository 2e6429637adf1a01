package check

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// unknown returns the metrics and labels in an expression that do not exist. known has the
// labels of each metric.
func unknown(expr parser.Expr, known map[string][]string) []string {
	var out []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			if _, ok := known[n.Name]; !ok {
				out = append(out, "metric "+n.Name)
			}
			for _, m := range n.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(append(ofTheTarget, known[n.Name]...), m.Name) {
					out = append(out, fmt.Sprintf("label %s of %s", m.Name, n.Name))
				}
			}
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !slices.Contains(below(n, known), label) {
					out = append(out, fmt.Sprintf("label %s in %s", label, n))
				}
			}
		}
		return nil
	})
	return out
}

// below returns the labels of the series in a node.
func below(node parser.Node, known map[string][]string) []string {
	out := slices.Clone(ofTheTarget)
	parser.Inspect(node, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			out = append(out, known[s.Name]...)
		}
		return nil
	})
	return out
}

func TestUnknownIsFound(t *testing.T) {
	have := map[string][]string{"a": {"x"}, "b": {"y"}}
	for text, want := range map[string]int{
		`sum by (x) (rate(a{x="1", pod="p"}[5m])) / on (x) a`: 0,
		`c`:                         1,
		`a{y="1"}`:                  1,
		`sum by (y) (a)`:            1,
		`sum by (y) (a * b{x="1"})`: 1,
		`absent(c{x="1"})`:          2,
	} {
		expr, err := language.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := unknown(expr, have); len(got) != want {
			t.Errorf("%s: got unknown names %q, want %d", text, got, want)
		}
	}
}

func TestRulesMeasureWhatThereIs(t *testing.T) {
	have := known(t)
	for name, rule := range rules(t) {
		expr, err := language.ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range unknown(expr, have) {
			t.Errorf("%s: unknown %s", name, what)
		}
		for _, text := range rule.Annotations {
			for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
				if by, ok := grouping(expr); !ok || !slices.Contains(by, m[1]) {
					t.Errorf("%s: the alerts have no label %s", name, m[1])
				}
			}
		}
		if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s: the severity, summary or description is missing", name)
		}
	}
}

// grouping returns the labels by which the outermost aggregation of an expression groups.
func grouping(expr parser.Expr) (by []string, ok bool) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if a, is := node.(*parser.AggregateExpr); is && !ok {
			by, ok = a.Grouping, true
		}
		return nil
	})
	return by, ok
}

func TestDashboardMeasuresWhatThereIs(t *testing.T) {
	d, have, shown := theDashboard(t), known(t), map[string]bool{}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s: the ID %d is not unique", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s has no targets", p.Title)
		}
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s overlaps %s", p.Title, q.Title)
			}
		}
		for _, target := range p.Targets {
			expr, err := language.ParseExpr(variables.Replace(target.Expr))
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
				continue
			}
			for _, what := range unknown(expr, have) {
				t.Errorf("%s: unknown %s", p.Title, what)
			}
			for _, s := range parser.ExtractSelectors(expr) {
				for _, m := range s {
					if m.Name == labels.MetricName {
						shown[regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(m.Value, "")] = true
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		base := regexp.MustCompile("_(bucket|sum|count)$").ReplaceAllString(name, "")
		if !shown[base] && regexp.MustCompile("^(ksctl|gotk)_").MatchString(base) {
			t.Errorf("the dashboard does not show %s", base)
		}
	}
	for _, v := range d.Templating.List {
		m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if v.Type == "query" && (m == nil || !slices.Contains(have[m[1]], m[2])) {
			t.Errorf("variable %s: unknown metric or label in %s", v.Name, v.Definition)
		}
	}
}
