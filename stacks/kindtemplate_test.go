package stacks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	goldenfile "github.com/ksctl/gitops/internal/golden"
)

// shopServes is what the stack shop serves in these tests.
const shopServes = `
  serves:
    group: shops.example.com
    kind: Shop
    shortNames: [sh]
    categories: [all]
    versions: [{name: v1alpha1}, {name: v1beta1, deprecated: true}]
    columns: [{name: URL, type: string, path: .status.url}]
    scale: {specReplicas: .spec.replicas, statusReplicas: .status.replicas}
    schema:
      type: object
      required: [host]
      properties:
        host: {type: string, minLength: 1}
        replicas: {type: integer, default: 1, minimum: 0}
        password: {type: string, format: password}
        values: {type: object, x-kubernetes-preserve-unknown-fields: true}
    validations: [{rule: self.metadata.name != 'shop', message: the name shop is taken}]
    install:
      timeout: 2m
      suspend: {expr: self.spec.replicas == 0}
      components:
      - name: main
        namePrefix: {expr: self.metadata.name + '-'}
        override: {replicas: [{name: web, count: {expr: self.spec.replicas}}]}
      parameters:
        host: {expr: self.spec.host}
        password: {expr: "self.spec.?password"}
        values: {expr: "has(self.spec.values) ? self.spec.values : {}"}
    statusSchema: {properties: {url: {type: string}, replicas: {type: integer}}}
    status:
      url: {expr: "'http://' + objects.Service[self.metadata.name + '-web'].spec.clusterIP"}
      replicas: {expr: self.spec.replicas}
      conditions: [{type: Available, status: {expr: ready.status}, reason: {expr: ready.reason}}]
`

const shopStack = "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: shop}\nspec:\n  version: 1.0.0\n" +
	"  components: [{name: main, manifests: [main.yaml]}]\n"

// loadShop loads the kind of a stack whose serves is changed by replacements.
func loadShop(t *testing.T, replace ...string) (*KindTemplate, error) {
	t.Helper()
	root := t.TempDir()
	serves := strings.NewReplacer(replace...).Replace(shopServes)
	if len(replace) > 0 && serves == shopServes {
		t.Fatalf("nothing is replaced: %q", replace)
	}
	for name, content := range map[string]string{"shop/stack.yaml": shopStack + strings.TrimPrefix(serves, "\n"),
		"shop/main.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"} {
		if err := os.MkdirAll(filepath.Join(root, "shop"), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return LoadKind(root, "", "shop")
}

func shopObject(spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": "shops.example.com/v1alpha1", "kind": "Shop",
		"metadata": map[string]any{"name": "a", "namespace": "b"}, "spec": spec}
}

func TestKindDefinition(t *testing.T) {
	k, err := loadShop(t)
	if err != nil {
		t.Fatal(err)
	}
	d, err := k.Definition()
	if err != nil {
		t.Fatal(err)
	}
	status := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	for _, field := range []string{"conditions", "inventory", "observedGeneration", "url", "replicas"} {
		if _, ok := status.Properties[field]; !ok {
			t.Errorf("the status lacks %s", field)
		}
	}
	if string(status.Default.Raw) != `{"observedGeneration":-1}` {
		t.Errorf("default of the status: %s", status.Default.Raw)
	}
	for i := range d.Spec.Versions { // it is that of a KsctlInstall, which has a golden file of its own
		delete(d.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties, "status")
	}
	goldenfile.JSON(t, "kind-definition.json", d)
}

func TestKindInstall(t *testing.T) {
	k, err := loadShop(t)
	if err != nil {
		t.Fatal(err)
	}
	spec, sensitive, err := k.Install(t.Context(), shopObject(map[string]any{"host": `a"b: {}`, "replicas": int64(3),
		"password": "hunter2"}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `components:
- name: main
  namePrefix: a-
  override:
    replicas:
    - count: 3
      name: web
parameters:
  host: 'a"b: {}'
  values: {}
parametersFrom:
- key: parameters
  kind: Secret
  name: (sensitive fields)
sourceRef:
  kind: ""
stack: ""
timeout: 2m0s
`
	if string(got) != want {
		t.Errorf("got:\n%s", got)
	}
	if string(sensitive["parameters"]) != `{"password":"hunter2"}` {
		t.Errorf("sensitive fields: %s", sensitive)
	}
	spec, _, err = k.Install(t.Context(), shopObject(map[string]any{"host": "x", "replicas": int64(0)}))
	var parameters map[string]any
	if err != nil || !spec.Suspend || json.Unmarshal(spec.Parameters.Raw, &parameters) != nil {
		t.Fatalf("%v %+v", err, spec)
	}
	if _, set := parameters["password"]; set {
		t.Error("an optional value without a value is set")
	}
}

// A value at run time is checked like that of a KsctlInstall, which the API server checks.
func TestKindInstallInvalid(t *testing.T) {
	k, err := loadShop(t, "timeout: 2m", "adopt: {expr: self.spec.host}")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = k.Install(t.Context(), shopObject(map[string]any{"host": "Nonsense", "replicas": int64(1)}))
	if err == nil || !strings.Contains(err.Error(), "adopt") || strings.Contains(err.Error(), "Nonsense") {
		t.Errorf("got %v", err)
	}
	k, err = loadShop(t, "timeout: 2m", "targetNamespace: {expr: self.spec.password + 'x'}")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = k.Install(t.Context(), shopObject(map[string]any{"host": "a", "password": "hunter2",
		"replicas": int64(1)}))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

func TestInvalidServes(t *testing.T) {
	for want, replace := range map[string][]string{
		`field "spec.serves.group" must be a DNS name with a dot`: {"group: shops.example.com",
			"group: shops"},
		`field "spec.serves.group" is reserved`: {"group: shops.example.com",
			"group: x.k8s.io"},
		`field "spec.serves.kind" must begin with an upper case letter`: {"kind: Shop",
			"kind: shop"},
		`field "spec.serves.versions[0].name" must be like v1`: {"name: v1alpha1",
			"name: one"},
		`field "spec.serves.columns[0].type" must be one of string`: {"type: string, path",
			"type: text, path"},
		`field "spec.serves.columns[0].path" must be a JSON path`: {"path: .status.url",
			"path: status.url"},
		`field "spec.serves.validations[0]" must have a rule and a message`: {", message: the name shop is taken",
			""},
		`field "spec.serves.install.timout" is not known; did you mean "timeout`: {"timeout: 2m",
			"timout: 2m"},
		`field "spec.serves.install.sourceRef" is not known`: {"timeout: 2m",
			"sourceRef: {kind: Catalog}"},
		`field "spec.serves.install.suspend" must return a boolean, not int`: {"self.spec.replicas == 0",
			"self.spec.replicas"},
		`undefined field 'hosts' (at 1:10`: {"{expr: self.spec.host}",
			"{expr: self.spec.hosts}"},
		`undeclared reference to 'ready'`: {"{expr: self.spec.host}",
			"{expr: ready.status}"},
		`undefined field 'status'`: {"{expr: self.spec.host}",
			"{expr: self.status.url}"},
		`field "spec.serves.install.suspend" must be of type boolean, not st`: {"suspend: {expr: self.spec.replicas == 0}",
			"suspend: 'yes'"},
		`field "spec.serves.status.urls" is not known; did you mean "url"`: {"      url: {expr",
			"      urls: {expr"},
		`field "spec.serves.status.replicas" must return an integer, not str`: {"replicas: {expr: self.spec.replicas}\n      cond",
			"replicas: {expr: self.spec.host}\n      cond"},
		`must read fields of objects`: {"objects.Service[self.metadata.name + '-web'].spec.clusterIP",
			"string(objects.Service.size())"},
		`has "conditions", which the status of every install has`: {"{url: {type: string}",
			"{conditions: {type: array, items: {type: string}}, url: {type: string}"},
		`field "spec.serves.statusSchema" cannot have default`: {"replicas: {type: integer}}}",
			"replicas: {type: integer, default: 1}}}"},
		`is not a schema of a CustomResourceDefinition`: {"minLength: 1",
			"minLenght: 1"},
		`is not structural: properties[host].type`: {"{type: string, minLength: 1}",
			"{minLength: 1}"},
	} {
		_, err := loadShop(t, replace...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got\n%v", want, err)
		}
	}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "stack.yaml"), []byte(shopStack), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKind(root, "", "shop"); err == nil || !strings.Contains(err.Error(), "the stack serves no kind") {
		t.Errorf("without serves: %v", err)
	}
}

func TestKindStatus(t *testing.T) {
	k, err := loadShop(t)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.ObjectFields(); len(got) != 1 || strings.Join(got["Service"][0], ".") != "spec.clusterIP" {
		t.Errorf("fields of objects: %v", got)
	}
	in := ServedState{Object: shopObject(map[string]any{"host": "x", "replicas": int64(2)}),
		Ready: metav1.Condition{Status: metav1.ConditionUnknown, Reason: "Progressing"}}
	st, err := k.Status(t.Context(), in)
	if _, set := st.Fields["url"]; set || err == nil {
		t.Errorf("without the Service: %+v %v", st, err)
	}
	if st.Fields["replicas"] != int64(2) || len(st.Conditions) != 1 || st.Conditions[0].Type != "Available" ||
		st.Conditions[0].Status != metav1.ConditionUnknown {
		t.Errorf("one field without a value affects others: %+v", st)
	}
	in.Objects = map[string]map[string]map[string]any{"Service": {"a-web": {"spec": map[string]any{
		"clusterIP": "10.0.0.1"}}}}
	if st, err = k.Status(t.Context(), in); err != nil || st.Fields["url"] != "http://10.0.0.1" {
		t.Errorf("%+v %v", st, err)
	}
}

// A sensitive field of the object does not reach the status.
func TestKindStatusWithoutSecrets(t *testing.T) {
	k, err := loadShop(t, "{expr: \"'http://' + objects.Service[self.metadata.name + '-web'].spec.clusterIP\"}",
		"{expr: self.spec.password}")
	if err != nil {
		t.Fatal(err)
	}
	st, err := k.Status(t.Context(), ServedState{Object: shopObject(map[string]any{"host": "x",
		"replicas": int64(2), "password": "hunter2"})})
	if _, set := st.Fields["url"]; set || err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%+v %v", st, err)
	}
}

// The API server refuses a whole status because of one condition: an invalid one is left out.
func TestKindStatusWithInvalidCondition(t *testing.T) {
	k, err := loadShop(t)
	if err != nil {
		t.Fatal(err)
	}
	st, err := k.Status(t.Context(), ServedState{Object: shopObject(map[string]any{"host": "x", "replicas": int64(2)})})
	if len(st.Conditions) != 0 || st.Fields["replicas"] != int64(2) || err == nil {
		t.Errorf("%+v %v", st, err)
	}
}

// Sensitive Helm values are apart from the others, and have no other place.
func TestSensitiveFields(t *testing.T) {
	k, err := loadShop(t, "override: {replicas: [{name: web, count: {expr: self.spec.replicas}}]}",
		"override: {values: {a: {b: {expr: \"self.spec.?password\"}, c: 1}, "+
			"list: [{expr: \"self.spec.?password\"}, x]}}")
	if err != nil {
		t.Fatal(err)
	}
	spec, sensitive, err := k.Install(t.Context(), shopObject(map[string]any{"host": "x", "replicas": int64(1),
		"password": "hunter2"}))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(spec.Components[0].Override.Raw); got != `{"values":{"a":{"c":1}}}` {
		t.Errorf("public values: %s", got)
	}
	if got := string(sensitive["values.main"]); got != `{"a":{"b":"hunter2"},"list":["hunter2","x"]}` {
		t.Errorf("sensitive values: %s", got)
	}
	if len(spec.ValuesFrom) != 1 || spec.ValuesFrom[0].Component != "main" {
		t.Errorf("valuesFrom: %+v", spec.ValuesFrom)
	}
	k, err = loadShop(t, "timeout: 2m", "targetNamespace: {expr: \"self.spec.?password\"}")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = k.Install(t.Context(), shopObject(map[string]any{"host": "x", "replicas": int64(1),
		"password": "hunter2"}))
	if err == nil || !strings.Contains(err.Error(), "spec.password is sensitive") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}
