package check

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

var language = parser.NewParser(parser.Options{})

func file(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// rules returns the alerting rules of the PrometheusRule by name, as Prometheus parses them.
func rules(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	var object struct {
		Spec yaml.Node `yaml:"spec"`
	}
	if err := yaml.Unmarshal(file(t, "../rules.yaml"), &object); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(&object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var output bytes.Buffer
	groups, errs := rulefmt.Parse(spec, false, model.LegacyValidation, language,
		slog.New(slog.NewTextHandler(&output, nil)))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || output.Len() > 0 {
		t.Fatalf("parsing the rules: %s", output.String())
	}
	out := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if _, twice := out[r.Alert]; twice || r.Alert == "" {
				t.Errorf("alert %q is not unique, or has no name", r.Alert)
			}
			out[r.Alert] = r
		}
	}
	return out
}

type target struct {
	Expr, RefID string
}

type panel struct {
	ID          int
	Type, Title string
	Targets     []target
	GridPos     struct{ X, Y, W, H int }
}

type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

func theDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(file(t, "../dashboard.json"), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// variables replaces Grafana's variables with example values.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*")

// known returns the labels of each existing metric: our metrics from docs/metrics.md, which
// is generated from the code, and metrics of libraries from testdata/libraries.txt, which a test of
// the controller checks.
func known(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	add := func(name, kind string, labels []string) {
		if kind != "histogram" {
			out[name] = labels
			return
		}
		out[name+"_bucket"], out[name+"_sum"], out[name+"_count"] = append(labels, "le"), labels, labels
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(string(file(t, "../../../docs/metrics.md")), -1) {
		var labels []string
		for _, l := range strings.Split(m[3], ", ") {
			labels = append(labels, strings.Trim(l, "` "))
		}
		add(m[1], m[2], labels)
	}
	if len(out) < 10 {
		t.Fatalf("found only %d metrics in docs/metrics.md", len(out))
	}
	for _, line := range strings.Split(strings.TrimSpace(string(file(t, "testdata/libraries.txt"))), "\n") {
		words := strings.Fields(line)
		add(words[0], "", words[1:])
	}
	return out
}

// ofTheTarget are the labels that Prometheus adds for the scraped target.
var ofTheTarget = []string{"job", "instance", "pod", "namespace"}
