package stacks_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

// noFields is a field that is never set.
const noFields = "    - {target: {kind: None}, path: a, value: \"1\", when: \"false\"}\n"

const hunter = `hunter2 "x" {{ y }}`

// secretStack is a stack of one component in each of the three forms, with a Deployment, a
// ConfigMap and a Secret.
func secretStack(form, fields string) map[string]string {
	files := fieldsStack(componentSources[form], fields)
	files["stack.yaml"] = strings.Replace(files["stack.yaml"], "        any: {type: array}\n",
		"        any: {type: array}\n        password: {type: string}\n        port: {type: integer, minimum: 1}\n"+
			"        open: {type: string, sensitive: false}\n        doc: {type: object, maxProperties: 2}\n"+
			"        db: {type: object, properties: {user: {type: string, default: root}, "+
			"password: {type: string}}}\n", 1)
	const secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: login}\ndata: {password: bm9uZQ==}\n"
	for name := range files {
		if strings.HasSuffix(name, "web.yaml") {
			files[name] += secret
		}
	}
	return files
}

func renderSecrets(t testing.TB, files map[string]string, parameters map[string]any,
	from ...stacks.ParametersInput) (map[string]map[string]any, []stacks.Object, error) {
	t.Helper()
	result, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
		Install: stacks.Identity{Namespace: "team", Name: "site"}, SecretKey: []byte("key"),
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"},
		Choices:      stacks.Choices{Parameters: parameters, ParametersFrom: from}})
	if err != nil {
		return nil, nil, err
	}
	out := map[string]map[string]any{}
	for _, o := range result.Components[0].Objects {
		var object map[string]any
		if err := json.Unmarshal(o.Manifest, &object); err != nil {
			t.Fatal(err)
		}
		out[o.Kind] = object
	}
	return out, result.Components[0].Objects, nil
}

func TestParametersOfSecretsReachEveryForm(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	const fields = `    - {target: {kind: Secret}, path: data.password, value: stack.password}
    - {target: {kind: Secret}, path: data.port, value: stack.port, create: true}
    - {target: {kind: Secret}, path: data.doc, value: "yaml.parse(base64.decode(stack.db.password))", create: true}
    - {target: {kind: Secret}, path: stringData, value: "{'user': stack.db.user, 'plain': stack.greeting}", create: true}
    - {target: {kind: ConfigMap}, path: data.greeting, value: stack.greeting}
    - {target: {kind: Deployment}, path: "spec.template.spec.containers.[name=app].image", value: stack.open}
`
	from := []stacks.ParametersInput{parametersFrom("ConfigMap", "", "", "greeting", "Hello", "port", "5"),
		parametersFrom("Secret", "", "", "password", hunter, "port", "4711", "open", "example.com/open"),
		parametersFrom("Secret", "p", "db.password", "p", b64("{b: [1], a: x}"))}
	for _, form := range slices.Sorted(maps.Keys(componentSources)) {
		got, objects, err := renderSecrets(t, secretStack(form, fields),
			map[string]any{"db": map[string]any{"user": "admin"}}, from...)
		if err != nil {
			t.Errorf("%s: %v", form, err)
			continue
		}
		for _, o := range objects {
			if !o.Sensitive {
				t.Errorf("%s: %s is not marked", form, o.Kind)
			}
		}
		raw, _ := json.Marshal(got)
		want := fmt.Sprintf(`"data":{"doc":%q,"password":%q,"port":%q}`, b64(`{"a":"x","b":[1]}`), b64(hunter),
			b64("4711"))
		for _, part := range []string{want, `"stringData":{"plain":"Hello","user":"admin"}`, `"greeting":"Hello"`,
			`"image":"example.com/open","name":"app"`} {
			if !strings.Contains(string(raw), part) {
				t.Errorf("%s: got %s\nwant %s", form, raw, part)
			}
		}
	}
}

// A value that a Secret and then the install itself set is plain.
func TestParametersOfAnInstallReplaceThoseOfSecrets(t *testing.T) {
	const fields = "    - {target: {kind: ConfigMap}, path: data.greeting, value: stack.password}\n"
	got, objects, err := renderSecrets(t, secretStack("manifests", fields), map[string]any{"password": "mine"},
		parametersFrom("Secret", "", "", "password", hunter))
	if err != nil || got["ConfigMap"]["data"].(map[string]any)["greeting"] != "mine" || objects[0].Sensitive {
		t.Errorf("got %v, %v", got, err)
	}
}

// Hashes of all objects of a component that a secret reaches are keyed, also those of a chart with
// values of a Secret.
func TestHashesOfSensitiveComponentsAreKeyed(t *testing.T) {
	files := secretStack("helm", "    - {target: {kind: Secret}, path: data.password, value: stack.password}\n")
	render := func(key string, from []stacks.ParametersInput, values []stacks.ValuesInput) (hashes []string) {
		result, err := stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
			SecretKey: []byte(key), Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"},
			Choices: stacks.Choices{Parameters: map[string]any{"password": "a"}, ParametersFrom: from, Values: values}})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range result.Components[0].Objects {
			if o.Kind != "Secret" {
				hashes = append(hashes, o.Hash)
			}
		}
		return hashes
	}
	document := stacks.ValuesInput{Component: "web", Source: "x", Data: []byte("a: 1")}
	public := document
	public.Public = true
	if a, b := render("one", nil, []stacks.ValuesInput{public}), render("two", nil,
		[]stacks.ValuesInput{public}); !slices.Equal(a, b) {
		t.Errorf("values of a ConfigMap: %v, %v", a, b)
	}
	if a, b := render("one", nil, []stacks.ValuesInput{document}), render("two", nil,
		[]stacks.ValuesInput{document}); slices.Equal(a, b) {
		t.Errorf("values of a Secret: %v, %v", a, b)
	}
	files["stack.yaml"] = strings.ReplaceAll(files["stack.yaml"], "stack.password", "stack.db.password")
	from := []stacks.ParametersInput{parametersFrom("Secret", "p", "db.password", "p", "b")}
	if a, b := render("one", from, nil), render("two", from, nil); slices.Equal(a, b) {
		t.Errorf("parameters of a Secret: %v, %v", a, b)
	}
}

// A secret goes into Secrets and Helm values only. The errors have the field and not the value.
func TestSecretsAreRefusedElsewhere(t *testing.T) {
	const mapped = "    parameters:\n      map: \"%s\"\n"
	from := []stacks.ParametersInput{parametersFrom("Secret", "", "", "password", "hunter2", "port", "4711", "doc",
		"{hunter2: 1}", "tls", "true")}
	for name, tt := range map[string]struct{ form, fields, extra, want string }{
		"a field of another kind": {"manifests",
			"{target: {kind: ConfigMap}, path: data.greeting, value: stack.password}",
			"", `field "fields[0].path" in ConfigMap`},
		"other fields of a Secret": {"manifests",
			"{target: {kind: Secret}, path: type, value: stack.password, create: true}",
			"", `field "fields[0].path" in Secret`},
		"a text with it": {"manifests",
			"{target: {kind: Secret}, path: data.password, value: \"stack.password + 'x'\"}",
			"", `field "fields[0].value" failed`},
		"a condition": {"manifests",
			"{target: {kind: Secret}, path: data.password, value: \"'x'\", when: stack.tls}", "",
			`field "fields[0].when" uses parameter "stack.tls"`},
		"a comparison": {"manifests",
			"{target: {kind: Secret}, path: data.password, value: \"'x'\", when: \"stack.password == 'a'\"}", "",
			`field "fields[0].when" failed`},
		"a key of a parsed one": {"manifests",
			"{target: {kind: Secret}, path: data.password, value: \"yaml.parse(stack.password).a\"}", "",
			`field "fields[0].value" failed`},
		"images": {"helm", "", fmt.Sprintf(mapped, "{'images': [{'name': 'old', 'newTag': stack.password}]}"),
			`parameters.map: images uses parameter "stack.password"`},
		"patches": {"kustomize", "", fmt.Sprintf(mapped, "{'patches': [{'target': {'kind': 'Secret'}, 'patch': "+
			"{'stringData': {'a': stack.password}}}]}"), `parameters.map: patches uses parameter "stack.password"`},
		"keys of values": {"helm", "", fmt.Sprintf(mapped, "{'values': {stack.password: 1}}"), "parameters.map failed"},
	} {
		fields := noFields
		if tt.fields != "" {
			fields = "    - " + tt.fields + "\n"
		}
		_, _, err := renderSecrets(t, secretStack(tt.form, fields+tt.extra), nil, from...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") ||
			!strings.Contains(err.Error(), "Secret") {
			t.Errorf("%s: got %v\nwant %s", name, err, tt.want)
		}
	}
	for content, want := range map[string]string{
		"port=0":                                  `parameter "port" must be at least 1`,
		"doc={hunter2: 1, hunter3: 2, c: 3}":      "stack.doc, which is from a Secret, does not match its schema",
		"db={user: a, hunter2: 1}":                "stack.db, which is from a Secret, does not match its schema",
		"db={user: [hunter2], password: hunter2}": "stack.db.user, which is from a Secret, does not match its schema",
	} {
		key, value, _ := strings.Cut(content, "=")
		_, _, err := renderSecrets(t, secretStack("manifests", noFields), nil,
			parametersFrom("Secret", "", "", key, value))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: got %v\nwant %s", content, err, want)
		}
	}
}

// The values of a Secret reach a chart through parameters.map, and no message of the chart.
func TestSecretsInHelmValues(t *testing.T) {
	files := secretStack("helm", noFields+"    parameters:\n      map: \"{'values': {'login': {'password': "+
		"stack.password, 'list': [stack.port]}}}\"\n")
	files["chart/templates/web.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n" +
		"data: {a: {{ .Values.login | toJson | quote }}}\n"
	from := parametersFrom("Secret", "", "", "password", hunter, "port", "4711")
	got, objects, err := renderSecrets(t, files, nil, from)
	want := `{"list":[4711],"password":"` + strings.ReplaceAll(hunter, `"`, `\"`) + `"}`
	if err != nil || got["ConfigMap"]["data"].(map[string]any)["a"] != want || !objects[0].Sensitive {
		t.Errorf("got %v, %v", got, err)
	}
	files["chart/templates/web.yaml"] = `{{ fail (printf "no good: %s" .Values.login.password) }}`
	if _, _, err = renderSecrets(t, files, nil, from); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// No message has a value of a Secret, also if the chart gets it decoded.
func TestDecodedSecretsStayOutOfMessages(t *testing.T) {
	files := secretStack("helm", noFields+"    parameters:\n      map: \"{'values': {'pw': "+
		"base64.decode(stack.password)}}\"\n")
	files["chart/templates/web.yaml"] = `{{ fail (printf "no good: %s" .Values.pw) }}`
	from := parametersFrom("Secret", "", "", "password", base64.StdEncoding.EncodeToString([]byte("verysecret")))
	if _, _, err := renderSecrets(t, files, nil, from); err == nil || strings.Contains(err.Error(), "verysecret") {
		t.Errorf("got %v", err)
	}
	for content, secret := range map[string]string{`abcd\,efgh`: "abcd,efgh", "{listaaaa,listbbbb}": "listbbbb"} {
		if texts := stacks.SecretTexts([]byte(content)); !slices.Contains(texts, secret) {
			t.Errorf("%s: got %q", content, texts)
		}
	}
}

// Below sensitive: false, a parameter can be sensitive again.
func TestSensitiveBelowPublicParameter(t *testing.T) {
	field := "    - {target: {kind: ConfigMap}, path: data.greeting, value: stack.db.password}\n"
	files := secretStack("manifests", field)
	files["stack.yaml"] = strings.Replace(files["stack.yaml"], "db: {type: object, properties: {user: {type: string, "+
		"default: root}, password: {type: string}}}", "db: {type: object, sensitive: false, properties: "+
		"{user: {type: string}, password: {type: string, sensitive: true}}}", 1)
	if !strings.Contains(files["stack.yaml"], "db: {type: object, sensitive: false") {
		t.Fatal(files["stack.yaml"])
	}
	_, _, err := renderSecrets(t, files, nil,
		parametersFrom("Secret", "", "", "db", "{user: root, password: verysecret}"))
	if err == nil || !strings.Contains(err.Error(), "is from a Secret") || strings.Contains(err.Error(), "verysecret") {
		t.Errorf("got %v", err)
	}
}
