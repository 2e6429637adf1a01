package stacks_test

import (
	"bytes"
	"compress/flate"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
)

// generatingChart is a stack with a chart whose templates generate values, rendered again and again
// as a controller does it.
type generatingChart struct {
	*testing.T
	files map[string]string
	req   stacks.Request
}

func newGeneratingChart(t *testing.T, templates map[string]string) *generatingChart {
	c := &generatingChart{T: t, files: map[string]string{
		"stack.yaml": components("- {name: shop, namespace: shop, " +
			"helm: {chart: chart, valuesFiles: [values.yaml]}}"),
		"values.yaml":      "",
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	}}
	for name, text := range templates {
		c.files["chart/templates/"+name] = text
	}
	c.req = stacks.Request{Stack: "demo", Install: stacks.Identity{Namespace: "team", Name: "site"},
		SecretKey:    []byte("test key"),
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3"},
		Generate: generated.Options{Policy: generated.Keep, Owner: "site", Values: map[string]*generated.Values{},
			Now: time.Unix(1700000000, 0)}}
	return c
}

// render renders the stack with the values of earlier renders, and remembers the new ones, as they
// are stored. It returns the data of all Secrets and ConfigMaps by name/key.
func (c *generatingChart) render() (data map[string]string, result stacks.Result) {
	c.Helper()
	c.req.Root = writeTree(c.T, c.files)
	result = mustRender(c.T, c.req)
	for name, v := range result.Generated {
		raw, err := json.Marshal(v)
		stored := &generated.Values{}
		if err != nil || json.Unmarshal(raw, stored) != nil || !stored.Equal(v) {
			c.Fatalf("%s, %v", raw, err)
		}
		c.req.Generate.Values[name] = stored
	}
	data = map[string]string{}
	for _, o := range result.Components[0].Objects {
		var object struct{ Data, StringData map[string]string }
		if err := json.Unmarshal(o.Manifest, &object); err != nil {
			c.Fatal(err)
		}
		for key, value := range object.Data {
			if raw, err := base64.StdEncoding.DecodeString(value); err == nil && o.Kind == "Secret" {
				value = string(raw)
			}
			if !o.Generated {
				data[o.Name+"/"+key] = value
			}
		}
		for key, value := range object.StringData {
			data[o.Name+"/"+key] = value
		}
	}
	return data, result
}

func (c *generatingChart) expectSame(before, after map[string]string, keys ...string) {
	c.Helper()
	for _, key := range keys {
		if before[key] == "" || before[key] != after[key] {
			c.Errorf("%s: %q, then %q", key, before[key], after[key])
		}
	}
}

const secretHead = "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData:\n"

func TestGeneratedValuesStay(t *testing.T) {
	c := newGeneratingChart(t, map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata:\n  checksum: {{ include (print " +
			"$.Template.BasePath \"/secret.yaml\") . | sha256sum }}\n" +
			"  own: {{ randAlphaNum 12 }}\n  at: {{ now | date \"2006-01-02T15:04:05\" }}\n",
		"secret.yaml": secretHead +
			"  password: {{ randAlphaNum 12 }}\n  id: {{ uuidv4 }}\n  port: {{ randInt 1000 9999 | quote }}\n",
		"tls.yaml": "{{- $ca := genCA \"shop-ca\" 365 }}{{ $cert := genSignedCert \"shop\" nil (list .Values.host) " +
			"365 $ca }}\napiVersion: v1\nkind: Secret\nmetadata: {name: tls}\n" +
			"data:\n  ca.crt: {{ $ca.Cert | b64enc }}\n" +
			"  tls.crt: {{ $cert.Cert | b64enc }}\n  tls.key: {{ $cert.Key | b64enc }}\n",
	})
	c.files["chart/values.yaml"] = "host: a.example.com\n"
	first, result := c.render()
	keys := []string{"login/password", "login/id", "login/port", "config/checksum", "config/own", "tls/ca.crt",
		"tls/tls.crt", "tls/tls.key"}
	c.expectSame(first, first, keys...)
	if first["config/at"] != "2023-11-14T22:13:20" || result.Warnings != nil {
		t.Errorf("%s, %v", first["config/at"], result.Warnings)
	}

	secret := result.Components[0].Objects[0]
	if !secret.Generated || secret.Name != generated.SecretName("site", "shop") || secret.Namespace != "shop" ||
		len(result.Components[0].Objects) != 4 {
		t.Errorf("%+v", secret.Ref)
	}

	c.req.Generate.Now = c.req.Generate.Now.Add(time.Hour)
	second, result := c.render()
	c.expectSame(first, second, append(keys, "config/at")...)
	if result.Generated != nil {
		t.Errorf("generated again: %v", result.Generated)
	}

	c.files["chart/Chart.yaml"] = "apiVersion: v2\nname: shop\nversion: 1.0.1\n"
	third, _ := c.render()
	c.expectSame(first, third, keys...)
	if third["config/at"] != "2023-11-14T23:13:20" {
		t.Errorf("the clock of another chart: %s", third["config/at"])
	}

	c.files["values.yaml"] = "host: b.example.com\n"
	fourth, _ := c.render()
	c.expectSame(first, fourth, "login/password", "tls/ca.crt")
	cert := parseCertificate(t, fourth["tls/tls.crt"])
	if !slices.Equal(cert.DNSNames, []string{"b.example.com"}) ||
		cert.CheckSignatureFrom(parseCertificate(t, first["tls/ca.crt"])) != nil {
		t.Errorf("%v", cert.DNSNames)
	}

	other := newGeneratingChart(t, nil)
	other.files = c.files
	if fifth, _ := other.render(); fifth["login/password"] == first["login/password"] {
		t.Error("two installs have the same password")
	}
}

func parseCertificate(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("%q is not PEM", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Another password gets another hash, the same one keeps it.
func TestSaltedHashFollowsPassword(t *testing.T) {
	c := newGeneratingChart(t,
		map[string]string{"secret.yaml": secretHead + "  auth: {{ htpasswd \"admin\" .Values.password | quote }}\n"})
	c.files["values.yaml"] = "password: first\n"
	first, _ := c.render()
	again, _ := c.render()
	c.expectSame(first, again, "login/auth")
	c.files["values.yaml"] = "password: second\n"
	second, _ := c.render()
	hash, isAdmin := strings.CutPrefix(second["login/auth"], "admin:")
	if !isAdmin || bcrypt.CompareHashAndPassword([]byte(hash), []byte("second")) != nil {
		t.Errorf("%s", second["login/auth"])
	}
}

// After a rotation, everything is generated again, once for each token.
func TestRotation(t *testing.T) {
	c := newGeneratingChart(t, map[string]string{"secret.yaml": secretHead + "  password: {{ randAlphaNum 10 }}\n"})
	c.req.Generate.Rotate = "shop@1" // it has nothing to rotate yet
	first, _ := c.render()
	again, _ := c.render()
	c.expectSame(first, again, "login/password")
	for _, rotate := range []string{"other@2", "shop@", "shop", ""} {
		c.req.Generate.Rotate = rotate
		same, _ := c.render()
		c.expectSame(first, same, "login/password")
	}
	c.req.Generate.Rotate = "shop@2"
	second, _ := c.render()
	third, _ := c.render()
	c.expectSame(second, third, "login/password")
	if first["login/password"] == second["login/password"] {
		t.Error("nothing was rotated")
	}
}

// Certificates that stay as they are in the cluster are replaced, all of them, once one of them is
// issued again: the authority in the cluster has not signed it.
func TestCertificateBesideLiveOnes(t *testing.T) {
	c := newGeneratingChart(t, map[string]string{
		"tls.yaml": "{{- $ca := genCA \"shop-ca\" 365 }}{{ $cert := genSignedCert \"shop\" nil (list .Values.host) " +
			"365 $ca }}\napiVersion: v1\nkind: Secret\nmetadata: {name: tls}\n" +
			"data: {ca.crt: {{ $ca.Cert | b64enc }}, tls.crt: {{ $cert.Cert | b64enc }}}\n",
		"secret.yaml": secretHead + "  url: redis://{{ randAlphaNum 12 }}@cache\n"})
	c.files["chart/values.yaml"] = "host: a.example.com\n"
	liveFields := func() (out []string) {
		_, result := c.render()
		for _, o := range result.Components[0].Objects {
			for _, pointer := range o.InitialFields {
				out = append(out, o.Name+pointer)
			}
		}
		return out
	}
	expect := func(why string, want ...string) {
		t.Helper()
		if got := liveFields(); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", why, got, want)
		}
	}
	expect("an install has generated its values itself")
	for call, v := range c.req.Generate.Values["shop"].Calls {
		v.StaysLive = true
		c.req.Generate.Values["shop"].Calls[call] = v
	}
	expect("what the cluster had stays", "login/data/url", "tls/data/ca.crt", "tls/data/tls.crt")
	c.files["chart/values.yaml"] = "host: b.example.com\n"
	expect("a new certificate needs its authority", "login/data/url")
	c.req.Generate.Rotate = "shop@1"
	expect("everything is generated again")
}

// A value that several keys have stays with those that still share it.
func TestSharedValueIsSplit(t *testing.T) {
	c := newGeneratingChart(t,
		map[string]string{"secret.yaml": "{{- $p := randAlphaNum 10 }}\n" + secretHead +
			"  a: {{ $p }}\n  b: {{ $p }}\n"})
	first, _ := c.render()
	c.files["chart/templates/secret.yaml"] = secretHead + "  a: {{ randAlphaNum 10 }}\n  b: {{ randAlphaNum 10 }}\n"
	second, _ := c.render()
	c.expectSame(first, second, "login/a")
	c.files["chart/templates/secret.yaml"] = "{{- $p := randAlphaNum 10 }}\n" + secretHead +
		"  a: {{ $p }}\n  b: {{ $p }}\n"
	third, _ := c.render()
	c.expectSame(second, third, "login/a")
}

// The Secret with the values comes after the Namespaces that a chart renders, and in a namespace
// that the component has.
func TestPlaceOfGeneratedSecret(t *testing.T) {
	c := newGeneratingChart(t,
		map[string]string{"all.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n---\napiVersion: " +
			"v1\nkind: Secret\nmetadata: {name: login, namespace: other}\nstringData: {password: {{ randAlphaNum " +
			"10 }}}\n"})
	_, result := c.render()
	objects := result.Components[0].Objects
	if len(objects) != 3 || objects[0].Kind != "Namespace" || !objects[1].Generated ||
		objects[1].Namespace != "other" || objects[2].Name != "login" {
		t.Errorf("%+v", objects)
	}
}

// A call that is inserted before others shifts them. The keys of Secrets keep their values, and
// what is derived from these follows.
func TestInsertedCall(t *testing.T) {
	tls := "{{- $ca := genCA \"shop-ca\" 365 }}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: tls}\n" +
		"data: {ca.crt: {{ $ca.Cert | b64enc }}, ca.key: {{ $ca.Key | b64enc }}}\n"
	rest := "  user: {{ randAlphaNum 10 }}\n  {{- $p := randAlphaNum 20 }}\n  password: {{ $p | quote }}\n  auth: {{ " +
		"htpasswd \"u\" $p | quote }}\n" + tls
	c := newGeneratingChart(t, map[string]string{"secret.yaml": secretHead + rest,
		"config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata:\n  checksum: {{ include " +
			"(print $.Template.BasePath \"/secret.yaml\") . | sha256sum }}\n"})
	first, _ := c.render()
	c.files["chart/templates/secret.yaml"] = secretHead +
		"  token: {{ randAlphaNum 30 }}\n  other: {{ htpasswd \"a\" \"b\" | quote }}\n" + rest
	second, result := c.render()
	c.expectSame(first, second, "login/user", "login/password", "login/auth", "tls/ca.crt", "tls/ca.key")
	if len(second["login/token"]) != 30 || second["config/checksum"] == first["config/checksum"] {
		t.Errorf("%q, %v", second["login/token"], result.Warnings)
	}
	third, result := c.render()
	c.expectSame(second, third, "login/token", "login/user", "login/password", "config/checksum")
	if result.Generated != nil {
		t.Error("the values did not settle")
	}
	c.files["chart/templates/secret.yaml"] = secretHead + rest // and the call is removed again
	fourth, _ := c.render()
	c.expectSame(first, fourth, "login/user", "login/password", "login/auth", "tls/ca.crt", "config/checksum")
}

// Other arguments of a random function do not change what a program already uses.
func TestLengthOfGeneratedValueChanges(t *testing.T) {
	c := newGeneratingChart(t, map[string]string{"secret.yaml": secretHead + "  password: {{ randAlphaNum 10 }}\n"})
	first, _ := c.render()
	c.files["chart/templates/secret.yaml"] = secretHead + "  password: {{ randAlphaNum 20 }}\n"
	second, result := c.render()
	c.expectSame(first, second, "login/password")
	want := `component "shop": chart/templates/secret.yaml: randAlphaNum was called with 10 before and now with 20: the value that was generated before is kept`
	if !slices.Equal(result.Warnings, []string{want}) {
		t.Errorf("%v", result.Warnings)
	}
}

// What was derived before stays, whatever the version of the chart.
func TestDerivedValuesAreKept(t *testing.T) {
	c := newGeneratingChart(t, map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata:\n  checksum: {{ include " +
			"(print $.Template.BasePath \"/secret.yaml\") . | sha256sum }}\n  own: {{ randAlphaNum 12 }}\n",
		"secret.yaml": secretHead + "  password: {{ randAlphaNum 12 }}\n  id: {{ uuidv4 }}\n",
	})
	keys := []string{"login/password", "login/id", "config/checksum", "config/own"}
	keep := c.req.Generate
	c.req.Generate = generated.Options{}
	derived, result := c.render()
	if len(result.Warnings) != 2 || result.Generated != nil {
		t.Errorf("%v", result.Warnings)
	}
	c.req.Generate = keep
	c.req.Generate.Derive = []string{"shop"}
	first, _ := c.render()
	c.expectSame(derived, first, keys...)
	c.req.Generate.Derive = nil
	c.files["chart/Chart.yaml"] = "apiVersion: v2\nname: shop\nversion: 2.0.0\n"
	second, _ := c.render()
	c.expectSame(derived, second, keys...)
}

// Neither a message nor the hash of an object discloses a generated value.
func TestGeneratedValuesAreNotDisclosed(t *testing.T) {
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {password: {{ randAlphaNum 12 }}}\n"
	c := newGeneratingChart(t, map[string]string{"config.yaml": config})
	data, result := c.render()
	unkeyed := newGeneratingChart(t,
		map[string]string{"config.yaml": strings.Replace(config, "{{ randAlphaNum 12 }}", data["config/password"], 1)})
	_, plain := unkeyed.render()
	if hash := result.Components[0].Objects[1].Hash; hash == plain.Components[0].Objects[0].Hash {
		t.Error("the hash of a ConfigMap with a password is not keyed")
	}
	for _, text := range []string{`{{ fail (print "bad " (randAlphaNum 12)) }}`,
		`{{ fail (print "bad " (genPrivateKey "ed25519" | replace "\n" " ")) }}`} {
		c.files["chart/templates/config.yaml"] = text
		c.req.Root = writeTree(t, c.files)
		_, err := stacks.Render(t.Context(), c.req)
		if err == nil || strings.Contains(err.Error(), data["config/password"]) ||
			!strings.Contains(err.Error(), "bad") || !strings.Contains(err.Error(), "***") {
			t.Errorf("%v", err)
		}
	}
}

// Placeholders need no stored values, and list what would be generated.
func TestPlaceholderRender(t *testing.T) {
	c := newGeneratingChart(t,
		map[string]string{"secret.yaml": secretHead +
			"  password: {{ randAlphaNum 12 }}\n  auth: {{ htpasswd \"admin\" \"x\" }}\n  at: {{ now | quote }}\n"})
	c.req.Generate = generated.Options{Policy: generated.Placeholders, Values: map[string]*generated.Values{}}
	first, result := c.render()
	c.req.Generate.Values = map[string]*generated.Values{}
	again, _ := c.render()
	c.expectSame(first, again, "login/password", "login/auth", "login/at")
	if len(result.Generated["shop"].Calls) != 2 || len(result.Components[0].Objects) != 1 {
		t.Errorf("%v", result.Generated)
	}
}

// A cached result is used for the values that it generated.
func TestRendererRemembersGeneratedValues(t *testing.T) {
	renders := 0
	r := stacks.NewRenderer(stacks.RendererOptions{OnRender: func(stacks.Request, time.Duration, error) { renders++ }})
	c := newGeneratingChart(t, map[string]string{"secret.yaml": secretHead + "  password: {{ randAlphaNum 12 }}\n"})
	c.req.Root = writeTree(t, c.files)
	first, err := r.Render(t.Context(), c.req)
	if err != nil {
		t.Fatal(err)
	}
	c.req.Generate = c.req.Generate.With(first.Generated)
	second, err := r.Render(t.Context(), c.req)
	if err != nil || renders != 1 || second.Generated != nil || second.Digest != first.Digest {
		t.Errorf("%d renders, %v, %v", renders, second.Generated, err)
	}
}

// Hooks of a removal are kept with the generated values, and are not part of the stack.
func TestRemovalHooksAreKept(t *testing.T) {
	hook := func(kind, version, name, events, weight string) string {
		return fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata: {name: %s, annotations: {helm.sh/hook: %q, "+
			"helm.sh/hook-weight: %q}}\n", version, kind, name, events, weight)
	}
	files := map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n" +
			hook("Job", "batch/v1", "after", "post-delete", "") + hook("Job", "batch/v1", "late", "pre-delete", "7") +
			hook("ServiceAccount", "v1", "late", "pre-delete", "-7") +
			hook("Job", "batch/v1", "both", "pre-install,post-delete", "1"),
	}
	files["stack.yaml"] = components("- {name: shop, helm: {chart: chart}}")
	render := func(values map[string]*generated.Values) (stacks.Result, error) {
		return stacks.Render(t.Context(), stacks.Request{Root: writeTree(t, files), Stack: "demo",
			Install:      stacks.Identity{Namespace: "team", Name: "demo"},
			Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
			Generate:     generated.Options{Policy: generated.Keep, Owner: "site", Values: values}})
	}
	result, err := render(nil)
	if err != nil {
		t.Fatal(err)
	}
	var objects, kept []string
	for _, o := range result.Components[0].Objects {
		objects = append(objects, o.Kind)
	}
	hooks, err := stacks.DecodeHooks(result.Generated["shop"].Hooks)
	if err != nil {
		t.Fatal(err)
	}
	hashes := map[string]bool{}
	for _, o := range hooks {
		kept = append(kept, fmt.Sprintf("%s %s %s %d", o.Hook.Phase, o.Kind, o.Name, o.Hook.Weight))
		hashes[o.Hash] = true
		if len(o.Manifest) == 0 || o.Namespace == "" {
			t.Errorf("%+v", o)
		}
	}
	if want := []string{"Secret", "Job", "ConfigMap"}; !slices.Equal(objects, want) {
		t.Errorf("objects %v, want %v", objects, want)
	}
	if want := []string{"PreDelete ServiceAccount late -7", "PostDelete Job after 0", "PostDelete Job both 1",
		"PreDelete Job late 7"}; !slices.Equal(kept, want) || len(hashes) != len(want) {
		t.Errorf("kept %v with %d hashes, want %v", kept, len(hashes), want)
	}
	if len(result.Warnings) > 0 {
		t.Error(result.Warnings)
	}
	// The next render has them as an input: nothing is new.
	again, err := render(result.Generated)
	if err != nil || len(again.Generated) > 0 {
		t.Errorf("%v, %v", again.Generated, err)
	}
	// Without the hooks, nothing is kept.
	files["chart/templates/x.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n"
	without, err := render(result.Generated)
	if err != nil || len(without.Components[0].Objects) != 1 {
		t.Errorf("%+v, %v", without.Components, err)
	}
}

func TestDecodeHooksRefusesWhatWasChanged(t *testing.T) {
	encode := func(text string) []byte {
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.BestSpeed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	const hook = `"kind":"Job","name":"a","version":"v1","hash":"x"`
	for name, encoded := range map[string][]byte{
		"no JSON": encode("no"), "not compressed": []byte("[]"), "no hook": encode("[{" + hook + `,"manifest":{}}]`),
		"no manifest":   encode("[{" + hook + `,"hook":{"phase":"PreDelete","weight":0}}]`),
		"another phase": encode("[{" + hook + `,"manifest":{},"hook":{"phase":"Pre","weight":0}}]`),
		"too large":     encode("[" + strings.Repeat(" ", 17<<20) + "]"),
	} {
		if hooks, err := stacks.DecodeHooks(encoded); err == nil {
			t.Errorf("%s: got %+v", name, hooks)
		}
	}
	hooks, err := stacks.DecodeHooks(encode("[{" + hook + `,"manifest":{},"hook":{"phase":"PreDelete","weight":0}}]`))
	if err != nil || len(hooks) != 1 {
		t.Errorf("got %+v, %v", hooks, err)
	}
}

// Tests are not applied, and leave the names of other objects alone.
func TestTestsOfCharts(t *testing.T) {
	hook := func(kind, version, name, events string) string {
		return fmt.Sprintf("---\napiVersion: %s\nkind: %s\nmetadata: {name: %s, annotations: {helm.sh/hook: %q}}\n",
			version,
			kind, name, events)
	}
	result, err := renderChart(t, map[string]string{
		"chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\n" +
			hook("Pod", "v1", "check", "test") + hook("Pod", "v1", "check", "test-success") +
			hook("ConfigMap", "v1", "own", "test") + hook("Job", "batch/v1", "both", "post-install,test"),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var tests []string
	for _, o := range result.Components[0].Tests {
		tests = append(tests, o.Kind+" "+o.Name)
	}
	if !slices.Equal(tests, []string{"Pod check"}) || len(result.Components[0].Objects) != 2 ||
		len(result.Warnings) != 2 {
		t.Errorf("tests %v, warnings %q", tests, result.Warnings)
	}
}
