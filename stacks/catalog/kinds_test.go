package catalog

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// load returns the kind that a shipped stack serves.
func load(t *testing.T, name string) *stacks.KindTemplate {
	t.Helper()
	k, err := stacks.LoadKind(folder(t, name, "1.0.0"), "", name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// object returns an object with a spec in YAML.
func object(t *testing.T, name, spec string) map[string]any {
	t.Helper()
	var s map[string]any
	if err := yaml.Unmarshal([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"metadata": map[string]any{"name": name, "namespace": "team"}, "spec": s}
}

func TestMinimartValuesAreTheSpec(t *testing.T) {
	spec, _, err := load(t, "minimart").Install(t.Context(),
		object(t, "corner", "{replicaCount: 2, affinity: {nodeAffinity: {a: [b]}}, apps: {rest: {stat: /s}}}"))
	if err != nil {
		t.Fatal(err)
	}
	choice := spec.Components[0]
	var override struct {
		Values map[string]any `json:"values"`
	}
	if err := json.Unmarshal(choice.Override.Raw, &override); err != nil {
		t.Fatal(err)
	}
	install := &appsv1.KsctlInstall{Spec: spec}
	choices, err := stacks.ChoicesFromInstall(install, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := stacks.Render(t.Context(), stacks.Request{Root: folder(t, "minimart", "1.0.0"), Stack: "minimart",
		Install: stacks.Identity{Namespace: "team", Name: "corner"}, Choices: choices,
		Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
	if err != nil || len(res.Warnings) > 0 {
		t.Fatal(err, res.Warnings)
	}
	out := manifests(res)
	for _, want := range []string{`"replicas":2`, `"nodeAffinity":{"a":["b"]}`, `"REST_STAT":"/s"`,
		`"REST_BEV":"/minimart-bev"`, `"serviceAccountName":"corner"`, `"path":"/liveness"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "Ingress") || strings.Contains(out, "HorizontalPodAutoscaler") {
		t.Errorf("what is disabled is in\n%s", out)
	}
}

func manifests(res stacks.Result) string {
	var out strings.Builder
	for _, c := range res.Components {
		for _, o := range c.Objects {
			out.Write(o.Manifest)
			out.WriteString("\n")
		}
	}
	return out.String()
}

// The Job of both forms of a spec is the same, and the status finds it.
func TestPartitionJobs(t *testing.T) {
	const fields = `{tableName: orders, partitionValue: "a$$b", endpointURL: "http://db:8000",
 credentials: {secretName: aws}}`
	k := load(t, "dynamodb-partition")
	var names []string
	other := strings.Replace(fields, "orders", "old", 1)
	for _, spec := range []string{fields, "{ddbCtlDpJob: " + fields + "}", other} {
		o := object(t, "customer.17", spec)
		install, _, err := k.Install(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		choices, err := stacks.ChoicesFromInstall(&appsv1.KsctlInstall{Spec: install}, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := stacks.Render(t.Context(), stacks.Request{Root: folder(t, "dynamodb-partition", "1.0.0"),
			Stack: "dynamodb-partition", Install: stacks.Identity{Namespace: "team", Name: "customer.17"},
			Choices: choices, Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
		if err != nil {
			t.Fatal(err)
		}
		out := manifests(res)
		for _, want := range []string{`"--partition-value=a$$$$b"`, `"--region=us-east-1"`,
			`"envFrom":[{"secretRef":{"name":"aws"}}]`, `"ksctl.com/create-only":"true"`} {
			if !strings.Contains(out, want) {
				t.Errorf("%s is not in\n%s", want, out)
			}
		}
		job := res.Components[0].Objects[0].Name
		names = append(names, job)
		status, err := k.Status(t.Context(), stacks.ServedState{Object: o,
			Objects: map[string]map[string]map[string]any{
				"Job": {job: {"result": map[string]any{"deletedItems": int64(5)}}}}})
		if err != nil || status.Fields["deletedItems"] != int64(5) {
			t.Errorf("the status of %s is %v, %v", job, status.Fields, err)
		}
	}
	if names[0] != names[1] || names[0] == names[2] || !strings.HasPrefix(names[0], "customer-17-delete-") {
		t.Errorf("Jobs %v", names)
	}
}

func TestCollectorConfiguration(t *testing.T) {
	k := load(t, "collector")
	spec := func(configuration string) string {
		return `{collector: {name: otel, version: 1.0.0, configuration: "` + configuration +
			`"}, tenant: {id: "1", reference: Tenant-A, instance: blue}}`
	}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	install, sensitive, err := k.Install(t.Context(), object(t, "a", spec(encode("{token: hunter2}"))))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(sensitive["values.collector"]); got != `{"token":"hunter2"}` {
		t.Errorf("sensitive values %s", got)
	}
	choice := install.Components[0]
	if install.TargetNamespace != "tenant-a" || choice.ReleaseName != "otel-blue" ||
		string(install.Parameters.Raw) != `{"chart":"otel","chartVersion":"1.0.0"}` {
		t.Errorf("%+v", install)
	}
	if raw, err := json.Marshal(install); err != nil || strings.Contains(string(raw), "hunter2") {
		t.Errorf("the spec of the install has the configuration: %s, %v", raw, err)
	}
	for _, invalid := range []string{"%hunter2", encode("a: [hunter2"), encode("hunter2"), encode("[hunter2]")} {
		_, _, err := k.Install(t.Context(), object(t, "a", spec(invalid)))
		if err == nil || !strings.Contains(err.Error(), "spec.collector.configuration") ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", invalid, err)
		}
	}
	if _, _, err := k.Install(t.Context(), object(t, "a", spec(encode("")))); err != nil {
		t.Errorf("an empty configuration: %v", err)
	}
}
