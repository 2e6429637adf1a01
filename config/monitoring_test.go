package config_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	_ "github.com/ksctl/gitops/internal/manager" // registers the metrics of the process
)

func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The tests in monitoring/check read rules and dashboard with Prometheus' own parser and engine.
func TestRulesAndDashboard(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles Prometheus' engine")
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "./...")
	cmd.Dir = filepath.Join("monitoring", "check")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// monitoring/check/testdata/libraries.txt lists the metrics of libraries with their labels, because
// the tests there cannot query the registry.
func TestLibraryMetricsExist(t *testing.T) {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		crmetrics.Registry.(prometheus.Collector).Describe(descs)
	}()
	form := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*)\}\}$`)
	have := map[string]string{}
	for d := range descs {
		if f := form.FindStringSubmatch(d.String()); f != nil {
			names := strings.FieldsFunc(f[2], func(r rune) bool { return r == ',' })
			slices.Sort(names)
			have[f[1]] = strings.Join(names, " ")
		}
	}
	for _, line := range strings.Split(
		strings.TrimSpace(string(readFile(t, "monitoring", "check", "testdata", "libraries.txt"))), "\n") {
		words := strings.Fields(line)
		slices.Sort(words[1:])
		if got, ok := have[words[0]]; !ok || got != strings.Join(words[1:], " ") {
			t.Errorf("%s is registered: %t, with the labels %q, want %q", words[0], ok, got, words[1:])
		}
	}
}

func TestAlertsAreDocumented(t *testing.T) {
	names := func(form string, text []byte) []string {
		var out []string
		for _, m := range regexp.MustCompile(form).FindAllSubmatch(text, -1) {
			out = append(out, string(m[1]))
		}
		return out
	}
	alerts := names(`(?m)^    - alert: (\w+)$`, readFile(t, "monitoring", "rules.yaml"))
	page := names("(?m)^\\| `(Ksctl\\w+)` \\|", readFile(t, "..", "docs", "monitoring.md"))
	if len(alerts) == 0 || !slices.Equal(alerts, page) {
		t.Errorf("docs/monitoring.md describes the alerts %q, rules.yaml has %q", page, alerts)
	}
}

func TestPodMonitorSelectsController(t *testing.T) {
	var monitor *unstructured.Unstructured
	for _, u := range build(t, "monitoring") {
		if u.GetNamespace() != controllerNamespace {
			t.Errorf("%s %s is in namespace %q", u.GetKind(), u.GetName(), u.GetNamespace())
		}
		if u.GetKind() == "PodMonitor" {
			monitor = u
		}
	}
	var spec struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port string `json:"port"`
		} `json:"podMetricsEndpoints"`
	}
	raw, err := yaml.Marshal(monitor.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &spec); err != nil {
		t.Fatal(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	pod := deployment(t).Spec.Template
	if selector.Empty() || !selector.Matches(labels.Set(pod.Labels)) {
		t.Errorf("%s selects no pod with %v", selector, pod.Labels)
	}
	for _, e := range spec.PodMetricsEndpoints {
		if e.Port != "metrics" { // the name of the port of --metrics-addr
			t.Errorf("the PodMonitor scrapes port %q", e.Port)
		}
	}
	if len(spec.PodMetricsEndpoints) != 1 {
		t.Errorf("the PodMonitor has %d endpoints, want 1", len(spec.PodMetricsEndpoints))
	}
}

// stateMetrics are the Helm values for kube-state-metrics.
type stateMetrics struct {
	RBAC struct {
		ExtraRules []rbacv1.PolicyRule `json:"extraRules"`
	} `json:"rbac"`
	CustomResourceState struct {
		Enabled bool `json:"enabled"`
		Config  struct {
			Kind string `json:"kind"`
			Spec struct {
				Resources []stateMetricsResource `json:"resources"`
			} `json:"spec"`
		} `json:"config"`
	} `json:"customResourceState"`
}

type stateMetricsResource struct {
	GroupVersionKind metav1.GroupVersionKind `json:"groupVersionKind"`
	MetricNamePrefix string                  `json:"metricNamePrefix"`
	Metrics          []struct {
		Name string `json:"name"`
		Help string `json:"help"`
		Each struct {
			Type string `json:"type"`
			Info struct {
				LabelsFromPath map[string][]string `json:"labelsFromPath"`
			} `json:"info"`
		} `json:"each"`
		LabelsFromPath map[string][]string `json:"labelsFromPath"`
	} `json:"metrics"`
}

// fluxLabelPaths are the labels of gotk_resource_info for each Flux kind, with the paths of their
// values.
var fluxLabelPaths = map[string]string{"name": "metadata.name", "exported_namespace": "metadata.namespace",
	"ready": "status.conditions.[type=Ready].status", "suspended": "spec.suspend"}

func TestStateMetricsCoverReconciledKinds(t *testing.T) {
	var values stateMetrics
	if err := yaml.UnmarshalStrict(readFile(t, "monitoring", "kube-state-metrics", "values.yaml"),
		&values); err != nil {
		t.Fatal(err)
	}
	kinds, plurals := map[string]*apiextensionsv1.JSONSchemaProps{}, map[string][]string{}
	for _, crd := range crds(t) {
		for _, v := range crd.Spec.Versions {
			if _, reconciled := v.Schema.OpenAPIV3Schema.Properties["status"].Properties["conditions"]; reconciled {
				kinds[crd.Spec.Group+"/"+v.Name+" "+crd.Spec.Names.Kind] = v.Schema.OpenAPIV3Schema
				plurals[crd.Spec.Group] = append(plurals[crd.Spec.Group], crd.Spec.Names.Plural)
			}
		}
	}
	var configured []string
	for _, resource := range values.CustomResourceState.Config.Spec.Resources {
		gvk := resource.GroupVersionKind
		kind := fmt.Sprintf("%s/%s %s", gvk.Group, gvk.Version, gvk.Kind)
		configured = append(configured, kind)
		if kinds[kind] == nil || len(resource.Metrics) != 1 || resource.MetricNamePrefix != "gotk" ||
			resource.Metrics[0].Name != "resource_info" || resource.Metrics[0].Each.Type != "Info" {
			t.Errorf("%s: the kind does not exist, or its only metric is not gotk_resource_info", kind)
			continue
		}
		paths := maps.Clone(resource.Metrics[0].LabelsFromPath)
		maps.Copy(paths, resource.Metrics[0].Each.Info.LabelsFromPath)
		for label, path := range paths {
			if err := checkPath(kinds[kind], path); err != nil {
				t.Errorf("%s: label %s: %v", kind, label, err)
			}
		}
		for label, path := range fluxLabelPaths {
			if got := strings.Join(paths[label], "."); got != path {
				t.Errorf("%s: label %s has path %q, want %s", kind, label, got, path)
			}
		}
	}
	if want := slices.Sorted(maps.Keys(kinds)); !slices.Equal(slices.Sorted(slices.Values(configured)), want) {
		t.Errorf("values.yaml has the kinds %q, reconciled are %q", configured, want)
	}
	if config := values.CustomResourceState; !config.Enabled || config.Config.Kind != "CustomResourceStateMetrics" {
		t.Errorf("customResourceState is not enabled: %+v", config)
	}
	seen := map[string][]string{}
	for _, rule := range values.RBAC.ExtraRules {
		if len(rule.APIGroups) != 1 || !slices.Equal(rule.Verbs, []string{"list", "watch"}) {
			t.Errorf("unexpected RBAC rule %+v", rule)
			continue
		}
		seen[rule.APIGroups[0]] = slices.Sorted(slices.Values(rule.Resources))
	}
	for group := range plurals {
		slices.Sort(plurals[group])
	}
	if !reflect.DeepEqual(seen, plurals) {
		t.Errorf("the RBAC rules allow %q, want %q", seen, plurals)
	}
}

// checkPath returns an error unless a path of kube-state-metrics leads to a scalar in the schema.
func checkPath(schema *apiextensionsv1.JSONSchemaProps, path []string) error {
	if path[0] == "metadata" { // in every object, and not in the schema
		return nil
	}
	at := *schema
	for i, step := range path {
		field, chosen := strings.CutPrefix(step, "[")
		if chosen { // [field=value] selects the list item with this value
			if at.Items == nil {
				return fmt.Errorf("%v is not a list", path[:i])
			}
			at, field = *at.Items.Schema, strings.Split(field, "=")[0]
		}
		next, ok := at.Properties[field]
		if !ok {
			return fmt.Errorf("field %v does not exist", path[:i+1])
		}
		if !chosen {
			at = next
		}
	}
	if at.Type != "string" && at.Type != "boolean" && at.Type != "integer" {
		return fmt.Errorf("%v has type %q, want a scalar", path, at.Type)
	}
	return nil
}

func TestCheckPathRejectsInvalidPaths(t *testing.T) {
	var schema *apiextensionsv1.JSONSchemaProps
	for _, crd := range crds(t) {
		if crd.Spec.Names.Kind == "KsctlInstall" {
			schema = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		}
	}
	for path, ok := range map[string]bool{
		"spec stack": true, "status conditions [type=Ready] status": true, "status components [name=web] objects": true,
		"spec stacks": false, "spec": false, "spec stack name": false, "status conditions status": false,
		"status conditions [kind=Ready] status": false, "spec [name=x] stack": false,
	} {
		if err := checkPath(schema, strings.Fields(path)); (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
	}
}
