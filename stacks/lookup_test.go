package stacks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

const lookupTemplate = `{{- $old := lookup "v1" "Secret" .Release.Namespace "login" }}
{{- $all := (lookup "v1" "Secret" "" "").items }}
apiVersion: v1
kind: Secret
metadata: {name: login}
data:
  password: {{ if $old }}{{ $old.data.password }}{{ else }}{{ randAlphaNum 12 | b64enc }}{{ end }}
stringData: {found: "{{ $all | default list | len }}"}
`

// answer answers the queries of the last render.
func (c *generatingChart) answer(objects map[string]map[string]any) (asked []string) {
	c.Helper()
	v := c.req.Generate.Values["shop"]
	for _, q := range v.AskedQueries() {
		asked = append(asked, q.String())
		found, err := v.Lookups[q.String()].NewAnswer(objects[q.String()])
		if err != nil {
			c.Fatal(err)
		}
		v.Lookups[q.String()] = found
	}
	return asked
}

func TestLookupIsAskedOncePerChartAndValues(t *testing.T) {
	const one, all = "v1 Secret shop login", "v1 Secret  "
	c := newGeneratingChart(t, map[string]string{"a.yaml": lookupTemplate})
	c.render()
	if asked := c.answer(nil); !slices.Equal(asked, []string{all, one}) {
		t.Fatalf("asked %q", asked)
	}
	first, _ := c.render()
	again, result := c.render()
	if asked := c.answer(nil); len(asked) > 0 || len(result.Generated) > 0 {
		t.Errorf("asked %q, new %v", asked, result.Generated)
	}
	c.expectSame(first, again, "login/password")
	if first["login/found"] != "0" {
		t.Errorf("got %q", first)
	}

	// Another chart asks again, and uses what is found.
	c.files["values.yaml"] = "a: b\n"
	c.render()
	login := map[string]any{"data": map[string]any{"password": "c3RvcmVkLXBhc3N3b3Jk"}}
	answers := map[string]map[string]any{one: login, all: {"items": []any{login, login}}}
	if asked := c.answer(answers); len(asked) != 2 {
		t.Errorf("asked %q", asked)
	}
	found, result := c.render()
	if found["login/password"] != "stored-password" || found["login/found"] != "2" {
		t.Errorf("got %q", found)
	}
	if secrets := c.req.Generate.Values["shop"].Secrets(); !slices.Contains(secrets, "stored-password") {
		t.Error("messages may contain what was looked up")
	}
	kept := result.Components[0].Objects[0]
	if !kept.Generated || !strings.Contains(string(kept.Manifest), generated.SecretType) {
		t.Errorf("the answers are not stored: %s", kept.Manifest)
	}

	// Rotated values are not those that were found.
	c.req.Generate.Rotate = "shop@1"
	rotated, _ := c.render()
	if asked := c.answer(answers); len(asked) > 0 || rotated["login/password"] == "stored-password" {
		t.Errorf("asked %q, got %q", asked, rotated)
	}
}

// What the install does not have is never found, and an answer that cannot change is not stored.
func TestForeignAnswersAreNotStored(t *testing.T) {
	c := newGeneratingChart(t, map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n" +
		"data: {found: '{{ lookup \"v1\" \"Secret\" \"kube-system\" \"x\" | len }}'}\n"})
	c.render()
	v := c.req.Generate.Values["shop"]
	for key, l := range v.Lookups {
		v.Lookups[key] = generated.Lookup{For: l.For, Foreign: true}
	}
	data, result := c.render()
	if len(result.Components[0].Objects) != 1 || len(result.Generated) > 0 || data["a/found"] != "0" {
		t.Errorf("got %+v, %q", result.Components[0].Objects, data)
	}
}

func TestLookupFindsNothingWithoutKeptValues(t *testing.T) {
	for _, policy := range []generated.Policy{generated.Refuse, generated.Placeholders} {
		c := newGeneratingChart(t, map[string]string{"a.yaml": lookupTemplate})
		c.req.Generate.Policy = policy
		data, result := c.render()
		if v := result.Generated["shop"]; data["login/found"] != "0" || v != nil && len(v.AskedQueries()) > 0 {
			t.Errorf("%q: got %q, %+v", policy, data, v)
		}
	}
}

func TestLookupAnswersAreBounded(t *testing.T) {
	large := map[string]any{"data": strings.Repeat("x", 256<<10)}
	if _, err := (generated.Lookup{}).NewAnswer(large); err == nil ||
		!strings.Contains(err.Error(), "262144 are kept") {
		t.Errorf("got %v", err)
	}
}

// Many charts refuse an upgrade that does not find the Secret of the install.
func TestLookupOfChartThatRefusesUpgrades(t *testing.T) {
	const login = "v1 Secret shop login"
	c := newGeneratingChart(t,
		map[string]string{"a.yaml": `{{- $old := lookup "v1" "Secret" .Release.Namespace "login" }}
{{- if and .Release.IsUpgrade (not $old) }}{{ fail "the password is empty" }}{{ end }}
apiVersion: v1
kind: Secret
metadata: {name: login}
data: {password: {{ if $old }}{{ $old.data.password }}{{ else }}{{ randAlphaNum 12 | b64enc }}{{ end }}}
stringData: {upgrade: "{{ .Release.IsUpgrade }}"}
`})
	c.req.Releases = map[string]stacks.ReleaseRecord{}
	render := func(want string) map[string]string {
		t.Helper()
		data, result := c.render()
		c.req.Releases = result.NextReleases(c.req.Releases)
		record := c.req.Releases["shop"]
		record.Complete = true
		c.req.Releases["shop"] = record
		if got := fmt.Sprint(record.Revision, " ", data["login/upgrade"]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		return data
	}
	render("1 false")
	c.answer(nil)
	first := render("1 false")
	stored := map[string]map[string]any{login: {"data": map[string]any{"password": "c3RvcmVkLXBhc3N3b3Jk"}}}

	c.files["values.yaml"] = "a: b\n"
	render("2 false")
	if asked := c.answer(stored); !slices.Equal(asked, []string{login}) {
		t.Fatalf("asked %q", asked)
	}
	second := render("2 true")
	if second["login/password"] != "stored-password" {
		t.Errorf("got %q", second)
	}

	c.req.Generate.Rotate = "shop@1"
	third := render("2 false")
	if third["login/password"] == second["login/password"] || third["login/password"] == first["login/password"] {
		t.Errorf("got %q", third)
	}
	c.expectSame(third, render("2 false"), "login/password")

	c.files["values.yaml"] = "fail: now\n"
	c.files["chart/templates/b.yaml"] = "{{ fail \"broken\" }}"
	c.req.Root = writeTree(t, c.files)
	if _, err := stacks.Render(t.Context(), c.req); err == nil ||
		!strings.Contains(err.Error(), "the template failed") {
		t.Errorf("got %v", err)
	}
}
