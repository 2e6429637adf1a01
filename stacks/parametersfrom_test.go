package stacks_test

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// parametersStack is a stack with parameters of every type, that a ConfigMap shows.
const parametersStack = stackHeader + `  parameters:
    schema:
      properties:
        text: {type: string, default: none}
        count: {type: integer}
        ratio: {type: [number, "null"]}
        on: {type: boolean}
        list: {type: array, items: {type: string}}
        any: {}
        db:
          type: object
          properties:
            user: {type: string}
            port: {type: integer}
            options: {type: object, additionalProperties: {type: boolean}}
            more: {type: object}
  components:
  - name: web
    manifests: [web.yaml]
    fields:
    - {target: {kind: ConfigMap}, path: data, value: "dyn(stack)"}
`

func parametersFrom(kind, key, targetPath string, data ...string) stacks.ParametersInput {
	m := map[string][]byte{}
	for i := 0; i+1 < len(data); i += 2 {
		m[data[i]] = []byte(data[i+1])
	}
	in, _ := stacks.NewParametersInput(appsv1.ParametersReference{Kind: kind, Name: "site", Key: key,
		TargetPath: targetPath}, m)
	return in
}

// renderParameters renders a stack with a ConfigMap, and returns its data as JSON.
func renderParameters(t testing.TB, stack string, parameters map[string]any,
	from ...stacks.ParametersInput) (string, []string, error) {
	t.Helper()
	req := stacks.Request{Root: writeTree(t, map[string]string{"stack.yaml": stack, "web.yaml": configMap +
		"data: {}\n"}), Stack: "demo", Choices: stacks.Choices{Parameters: parameters, ParametersFrom: from},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}}
	result, err := stacks.Render(t.Context(), req)
	if err != nil {
		return "", nil, err
	}
	var object struct{ Data json.RawMessage }
	if err := json.Unmarshal(result.Components[0].Objects[0].Manifest, &object); err != nil {
		t.Fatal(err)
	}
	return string(object.Data), result.Warnings, nil
}

func TestParametersFrom(t *testing.T) {
	for name, tt := range map[string]struct {
		from       []stacks.ParametersInput
		parameters map[string]any
		want       string
	}{
		"each key has the type of its parameter": {[]stacks.ParametersInput{parametersFrom("ConfigMap", "", "",
			"text", "12\n", "count", "-12", "ratio", "0.5", "on", "true", "list", "- a\n- \"1\"\n", "any", "{a: 1}",
			"db", "user: root\nport: 1\n")}, nil,
			`{"any":{"a":1},"count":-12,"db":{"port":1,"user":"root"},"list":["a","1"],"on":true,"ratio":0.5,` +
				`"text":"12\n"}`},
		"a number that is an integer stays one": {[]stacks.ParametersInput{parametersFrom("ConfigMap", "", "",
			"ratio", "9007199254740993")}, nil, `{"ratio":9007199254740993,"text":"none"}`},
		"a document is merged": {[]stacks.ParametersInput{
			parametersFrom("ConfigMap", "", "", "db", "{user: root, port: 1}"),
			parametersFrom("ConfigMap", "site.yaml", "", "site.yaml", "db: {port: 2}\ntext: a\n", "text", "b")}, nil,
			`{"db":{"port":2,"user":"root"},"text":"a"}`},
		"an empty document has no parameters": {[]stacks.ParametersInput{
			parametersFrom("ConfigMap", "a", "", "a", "# none\n")}, nil, `{"text":"none"}`},
		"a target path sets one parameter": {[]stacks.ParametersInput{
			parametersFrom("ConfigMap", "", "", "db", "{user: root, port: 1}"),
			parametersFrom("ConfigMap", "p", "db.port", "p", "5"),
			parametersFrom("ConfigMap", "p", `db.options.a\.b`, "p", "true"),
			parametersFrom("ConfigMap", "p", "db.more.x.y", "p", "[1]")}, nil,
			`{"db":{"more":{"x":{"y":[1]}},"options":{"a.b":true},"port":5,"user":"root"},"text":"none"}`},
		"later entries win, and the install's parameters over all": {[]stacks.ParametersInput{
			parametersFrom("ConfigMap", "", "", "text", "first", "count", "1", "db", "{user: a, port: 1}"),
			parametersFrom("ConfigMap", "", "", "text", "second", "count", "2")},
			map[string]any{"count": int64(3), "db": map[string]any{"user": "b"}},
			`{"count":3,"db":{"port":1,"user":"b"},"text":"second"}`},
	} {
		got, warnings, err := renderParameters(t, parametersStack, tt.parameters, tt.from...)
		if err != nil || got != tt.want || len(warnings) > 0 {
			t.Errorf("%s: got %s, %v, %v\nwant %s", name, got, warnings, err, tt.want)
		}
	}
}

func TestParametersFromWarnsOnceOfKeysThatAreNoParameter(t *testing.T) {
	got, warnings, err := renderParameters(t, parametersStack, nil,
		parametersFrom("ConfigMap", "", "", "text", "a", "other", "b", "more", "c"),
		parametersFrom("ConfigMap", "doc", "", "doc", "unknown: 1"))
	const want = `spec.parametersFrom has keys that are no parameter of the stack; they are ignored: ` +
		`ConfigMap site, key "more"; ConfigMap site, key "other"; ConfigMap site, key "unknown"`
	if err != nil || got != `{"text":"a"}` || len(warnings) != 1 || warnings[0] != want {
		t.Errorf("got %s, %q, %v", got, warnings, err)
	}
	_, warnings, err = renderParameters(t, stackHeader+"  components: [{name: web, manifests: [web.yaml]}]\n", nil,
		parametersFrom("ConfigMap", "", "", "text", "a"))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], `key "text"`) {
		t.Errorf("a stack without parameters: %q, %v", warnings, err)
	}
}

// Errors name the object, the key and the parameter, and never the content.
func TestParametersFromErrorsHaveNoContent(t *testing.T) {
	for _, kind := range []string{"ConfigMap", "Secret"} {
		for _, tt := range []struct{ key, targetPath, data, content, want string }{
			{"", "", "count", "hunter2", `key "count": parameter "count" must be an integer`},
			{"", "", "count", "12\n", `key "count": parameter "count" must be an integer`},
			{"", "", "count", "99999999999999999999", `parameter "count" must be an integer of at most 64 bits`},
			{"", "", "ratio", "0x10", `key "ratio": parameter "ratio" must be a number`},
			{"", "", "ratio", "1e999", `key "ratio": parameter "ratio" must be a number`},
			{"", "", "on", "yes-hunter2", `key "on": parameter "on" must be true or false`},
			{"", "", "list", "hunter2", `key "list": parameter "list" must be a YAML list`},
			{"", "", "db", "[hunter2]", `key "db": parameter "db" must be a YAML mapping`},
			{"", "", "any", "hunter2: [", `key "any": parameter "any" must be one YAML document; line 1 is not`},
			{"", "", "text", "hunter2\xff", `key "text": parameter "text" must be text in UTF-8`},
			{"k", "", "k", "hunter2: 1\nhunter2: 2\n", `key "k": line 2: not one YAML mapping with unique keys`},
			{"k", "", "k", "hunter2", `key "k": line 1: not one YAML mapping`},
			{"k", "db.port", "k", "hunter2", `key "k": parameter "db.port" must be an integer`},
			{"k", "db.host", "k", "hunter2", `key "k": targetPath "db.host" is no parameter of the stack`},
			{"k", "text.a", "k", "hunter2", `key "k": targetPath "text.a" is no parameter of the stack`},
			{"k", "txt", "k", "hunter2", `targetPath "txt" is no parameter of the stack; did you mean "text"?`},
		} {
			_, _, err := renderParameters(t, parametersStack, nil,
				parametersFrom(kind, tt.key, tt.targetPath, tt.data, tt.content))
			if err == nil || !strings.Contains(err.Error(), kind+" site, "+tt.want) &&
				!strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") ||
				!strings.Contains(err.Error(), kind+" site") {
				t.Errorf("%s %q: got %v\nwant %s", kind, tt.content, err, tt.want)
			}
		}
	}
}

func TestValuesFromTargetPath(t *testing.T) {
	const stack = stackHeader + "  components:\n  - {name: web, helm: {chart: chart}}\n"
	root := writeTree(t, map[string]string{"stack.yaml": stack,
		"chart/Chart.yaml":  "apiVersion: v2\nname: web\nversion: 2.0.0\n",
		"chart/values.yaml": "auth: {password: none}\nhosts: [a, b]\n",
		"chart/templates/web.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n" +
			"data: {values: {{ .Values | toJson | quote }}}\n"})
	at := func(path, data string) stacks.ValuesInput {
		return stacks.ValuesInput{Component: "web", Source: "Secret s, key k", TargetPath: path, Data: []byte(data)}
	}
	for _, tt := range []struct {
		values []stacks.ValuesInput
		want   string
	}{
		{[]stacks.ValuesInput{at("auth.password", `p@ss "word" {x}`)}, `"auth":{"password":"p@ss \"word\" {x}"}`},
		{[]stacks.ValuesInput{at("auth.password", `a\,b`)}, `"auth":{"password":"a,b"}`},
		{[]stacks.ValuesInput{at("auth.password", `"12"`)}, `"auth":{"password":"12"}`},
		{[]stacks.ValuesInput{at("auth.password", `12`)}, `"auth":{"password":12}`},
		{[]stacks.ValuesInput{at("hosts", `{x,y}`)}, `"hosts":["x","y"]`},
		{[]stacks.ValuesInput{{Component: "web", Source: "ConfigMap c", Data: []byte("hosts: [x, y]")},
			at("hosts[1]", "z")}, `"hosts":["x","z"]`},
	} {
		result, err := stacks.Render(t.Context(), stacks.Request{Root: root, Stack: "demo",
			Choices:      stacks.Choices{Values: tt.values},
			Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}})
		if err != nil {
			t.Errorf("%s: %v", tt.want, err)
			continue
		}
		var object struct{ Data struct{ Values string } }
		if err := json.Unmarshal(result.Components[0].Objects[0].Manifest, &object); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(object.Data.Values, tt.want) {
			t.Errorf("got %s, want %s", object.Data.Values, tt.want)
		}
	}
	for _, value := range []stacks.ValuesInput{at("auth.password", "hunter2,auth.user=root"), at("a=b", "hunter2"),
		at("auth.password", "a,hunter2"), at("hosts[0]", "a,hosts[1]=hunter2"), at("hosts[-1]", "hunter2")} {
		_, err := stacks.Render(t.Context(), stacks.Request{Root: root, Stack: "demo",
			Choices:      stacks.Choices{Values: []stacks.ValuesInput{value}},
			Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"}})
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "Secret s, key k") {
			t.Errorf("%s: %v", value.TargetPath, err)
		}
	}
}
