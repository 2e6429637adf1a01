package stacks_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/sops/codec"
)

// keyPair encrypts files, and decrypts them.
type keyPair struct {
	t      testing.TB
	id     *age.X25519Identity
	opened []string
}

func newKeyPair(t testing.TB) *keyPair {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return &keyPair{t: t, id: id}
}

// seal encrypts what has a name that fits regex; everything when it is empty.
func (k *keyPair) seal(f sops.Format, regex, plain string) string {
	k.t.Helper()
	out, err := codec.Encrypt([]byte(plain), f, []string{k.id.Recipient().String()}, codec.EncryptOptions{EncryptedRegex: regex})
	if err != nil {
		k.t.Fatal(err)
	}
	return string(out)
}

// open is a stacks.Opener.
func (k *keyPair) open(ctx context.Context, name string, f sops.Format, data []byte) ([]byte, error) {
	k.opened = append(k.opened, name)
	return codec.Decrypter(codec.Options{})(ctx, sops.Request{Name: name, Data: data, Format: f, Secret: map[string][]byte{"own.agekey": []byte(k.id.String())}})
}

// everyKind is a stack with encrypted files wherever a render reads some.
func everyKind(k *keyPair) map[string]string {
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: plain}\nstringData: {token: hunter2-manifest}\n"
	return map[string]string{
		"stack.yaml": components(
			"- {name: plain, manifests: [plain]}",
			"- {name: made, kustomize: {path: made}}",
			"- {name: shop, helm: {chart: chart, valuesFiles: [shop.yaml]}}",
		),
		"plain/secret.yaml": k.seal(sops.YAML, "^(data|stringData)$", secret),
		"plain/about.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: about}\ndata: {sops: none}\n",
		"made/kustomization.yaml": "resources: [config.json]\nsecretGenerator:\n- {name: env, envs: [made.env]}\n" +
			"- {name: file, files: [token.txt, conf=settings.ini, creds]}\n",
		"made/config.json":          k.seal(sops.JSON, "^data$", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"hunter2-json"}}`),
		"made/made.env":             k.seal(sops.Dotenv, "", "TOKEN=hunter2-env\n"),
		"made/token.txt":            k.seal(sops.Binary, "", "hunter2-binary"),
		"made/settings.ini":         k.seal(sops.INI, "", "[a]\nb = hunter2-ini\n"),
		"made/creds":                k.seal(sops.Dotenv, "", "A=hunter2-nameless\n"),
		"shop.yaml":                 k.seal(sops.YAML, "", "token: hunter2-values\n"),
		"chart/Chart.yaml":          "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml":         k.seal(sops.YAML, "", "token: ''\nown: hunter2-chart\n"),
		"chart/templates/x.yaml":    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {token: {{ .Values.token }}, own: {{ .Values.own }}}\n",
		"chart/README.md":           "Encrypt it, with sops: as in this one:\n\nsops:\n  mac: ENC[AES256_GCM]\n",
		"unread/other.yaml":         newKeyPair(k.t).seal(sops.YAML, "", "a: 1\n"),
		"plain/not-a-manifest.conf": newKeyPair(k.t).seal(sops.Binary, "", "a"),
	}
}

func encryptedRequest(t testing.TB, files map[string]string) stacks.Request {
	t.Helper()
	return stacks.Request{Stack: "demo", Root: writeTree(t, files), Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
		Install: stacks.Identity{Namespace: "team", Name: "site"}, SecretKey: []byte("test key")}
}

var everyEncrypted = []string{"chart/values.yaml", "made/config.json", "made/creds", "made/made.env", "made/settings.ini", "made/token.txt", "plain/secret.yaml", "shop.yaml"}

// Every kind of component reads what its files hold, and no other file is decrypted.
func TestEncryptedFilesAreRead(t *testing.T) {
	k := newKeyPair(t)
	req := encryptedRequest(t, everyKind(k))
	result, err := stacks.Decrypting(t.Context(), req, k.open, stacks.Render)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(k.opened); !slices.Equal(k.opened, everyEncrypted) || !slices.Equal(result.Decrypted, everyEncrypted) {
		t.Errorf("decrypted %q, and the result names %q", k.opened, result.Decrypted)
	}
	var text bytes.Buffer
	if err := result.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	for _, plain := range []string{"hunter2-manifest", "hunter2-json", b64("hunter2-env"), b64("hunter2-binary"), "hunter2-values", "hunter2-chart", "sops: none"} {
		if !strings.Contains(text.String(), plain) {
			t.Errorf("%s is not in what is rendered:\n%s", plain, text.String())
		}
	}
	for _, file := range []string{"creds", "conf"} {
		held := findObjectBy(t, result, "Secret", "file-")
		if !strings.Contains(held, `"`+file+`"`) {
			t.Errorf("no %s in %s", file, held)
		}
	}
	if strings.Contains(text.String(), "ENC[") {
		t.Errorf("something is rendered encrypted:\n%s", text.String())
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// findObjectBy is the manifest of the object of a kind whose name begins so.
func findObjectBy(t *testing.T, result stacks.Result, kind, prefix string) string {
	t.Helper()
	for _, c := range result.Components {
		for i := range c.Objects {
			if o := &c.Objects[i]; o.Kind == kind && strings.HasPrefix(o.Name, prefix) {
				return string(o.Manifest)
			}
		}
	}
	t.Fatalf("no %s %s…", kind, prefix)
	return ""
}

// Without what they hold a render names all of them, with their components.
func TestEncryptedFilesAreNamed(t *testing.T) {
	k := newKeyPair(t)
	req := encryptedRequest(t, everyKind(k))
	_, err := stacks.Render(t.Context(), req)
	met, ok := errors.AsType[*stacks.EncryptedError](err)
	if !ok {
		t.Fatalf("%T %v", err, err)
	}
	var files []string
	for _, f := range met.Files {
		files = append(files, f.File)
	}
	if !slices.Equal(files, everyEncrypted) {
		t.Errorf("met %q", files)
	}
	want := `component "shop": file chart/values.yaml; component "made": file made/config.json; component "made": file made/creds; ` +
		`component "made": file made/made.env; component "made": file made/settings.ini; and 3 more: they are encrypted with SOPS, and nothing here decrypts it`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}

	no := false
	req.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Enabled: &no}, {Name: "made", Enabled: &no}}
	_, err = stacks.Render(t.Context(), req)
	if want := `component "plain": file plain/secret.yaml: it is encrypted with SOPS, and nothing here decrypts it`; err == nil || err.Error() != want {
		t.Errorf("what is left out needs nothing: %v", err)
	}
	req.Choices.Components = append(req.Choices.Components, stacks.ComponentChoice{Name: "plain", Enabled: &no})
	if _, err := stacks.Render(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// Whoever loads or resolves a stack is told, too, instead of being given what is encrypted.
func TestLoadNamesEncryptedFiles(t *testing.T) {
	k := newKeyPair(t)
	root := writeTree(t, everyKind(k))
	def, err := stacks.Load(root, ".", "demo")
	if err != nil {
		t.Fatal(err)
	}
	_, err = stacks.Resolve(t.Context(), def, stacks.Identity{}, stacks.Choices{})
	if met, ok := errors.AsType[*stacks.EncryptedError](err); !ok || !slices.Contains(met.Files, stacks.EncryptedFile{Component: "shop", File: "shop.yaml"}) {
		t.Errorf("%T %v", err, err)
	}
	files := everyKind(k)
	files["made/kustomization.yaml"] = k.seal(sops.YAML, "", files["made/kustomization.yaml"])
	if _, err = stacks.Load(writeTree(t, files), ".", "demo"); !errors.As(err, new(*stacks.EncryptedError)) {
		t.Errorf("%T %v", err, err)
	}
	// What is in it is met only once it is decrypted.
	req := encryptedRequest(t, files)
	if result, err := stacks.Decrypting(t.Context(), req, k.open, stacks.Render); err != nil || len(result.Decrypted) != len(everyEncrypted)+1 {
		t.Errorf("%q, %v", result.Decrypted, err)
	}
}

func TestStackFilesAreNotDecrypted(t *testing.T) {
	k := newKeyPair(t)
	files := everyKind(k)
	files["stack.yaml"] = k.seal(sops.YAML, "^description$", files["stack.yaml"])
	req := encryptedRequest(t, files)
	_, err := stacks.Decrypting(t.Context(), req, k.open, stacks.Render)
	if err == nil || !strings.HasPrefix(err.Error(), "stack.yaml: a stack file must not be encrypted") || len(k.opened) > 0 {
		t.Errorf("%v, after %q", err, k.opened)
	}
}

// What can't be decrypted is named with its component; what failed is known by its type.
func TestOtherKeysDecryptNothing(t *testing.T) {
	k, other := newKeyPair(t), newKeyPair(t)
	files := everyKind(k)
	files["stack.yaml"] = components("- {name: plain, manifests: [plain]}")
	_, err := stacks.Decrypting(t.Context(), encryptedRequest(t, files), other.open, stacks.Render)
	cipher, ok := errors.AsType[*sops.Error](err)
	if !ok || cipher.Reason != sops.KeyMissing || !strings.HasPrefix(err.Error(), `component "plain": file plain/secret.yaml: `) {
		t.Errorf("%T %v", err, err)
	}
}

// Nothing but what is encrypted is replaced.
func TestOnlyEncryptedFilesAreReplaced(t *testing.T) {
	files := map[string]string{"stack.yaml": components("- {name: plain, manifests: [a.yaml]}"), "a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nsops: {version: 3}\n"}
	req := encryptedRequest(t, files)
	want := asJSON(t, mustRender(t, req).Components)
	req.Decrypted = map[string][]byte{"a.yaml": []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"), "stack.yaml": []byte("x")}
	result := mustRender(t, req)
	if got := asJSON(t, result.Components); got != want || len(result.Decrypted) > 0 {
		t.Errorf("got %s", got)
	}
}

// Values of an install are decrypted, whatever they come from, and are no longer public.
func TestEncryptedValues(t *testing.T) {
	k := newKeyPair(t)
	files := map[string]string{
		"stack.yaml": components("- {name: shop, helm: {chart: chart}}"), "chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml": "a: ''\nb: ''\n", "chart/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {a: {{ .Values.a }}, b: {{ .Values.b }}}\n",
	}
	req := encryptedRequest(t, files)
	req.Choices.Values = []stacks.ValuesInput{
		{Component: "shop", Source: "ConfigMap site, key values.yaml", Public: true, Data: []byte(k.seal(sops.YAML, "", "a: hunter2-yaml\n"))},
		{Component: "shop", Source: "Secret site, key values.json", Data: []byte(k.seal(sops.JSON, "", `{"b": "hunter2-json"}`))},
	}
	_, err := stacks.Render(t.Context(), req)
	if want := `component "shop": ConfigMap site, key values.yaml; component "shop": Secret site, key values.json: they are encrypted with SOPS, and nothing here decrypts it`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	result, err := stacks.Decrypting(t.Context(), req, k.open, stacks.Render)
	if err != nil {
		t.Fatal(err)
	}
	if text := findObjectBy(t, result, "ConfigMap", "shop"); !strings.Contains(text, "hunter2-yaml") || !strings.Contains(text, "hunter2-json") {
		t.Error(text)
	}
	if want := []string{"ConfigMap site, key values.yaml", "Secret site, key values.json"}; !slices.Equal(result.Decrypted, want) {
		t.Errorf("%q", result.Decrypted)
	}
	writeFile(t, filepath.Join(req.Root, "chart/templates/x.yaml"), "{{ fail .Values.a }}")
	if _, err = stacks.Decrypting(t.Context(), req, k.open, stacks.Render); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// What was decrypted is hidden wherever a renderer repeats it, and what stands readable in
// the same file is not.
func TestDecryptedIsHidden(t *testing.T) {
	k := newKeyPair(t)
	const secret = "hunter2 \\\"quoted\\\" and more"
	chart := map[string]string{
		"stack.yaml": components("- {name: shop, helm: {chart: chart, valuesFiles: [shop.yaml]}}"), "chart/Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml": "token: ''\n", "shop.yaml": k.seal(sops.YAML, "^token$", "token: \""+secret+"\"\nreadable: visible\n"),
	}
	for name, files := range map[string]map[string]string{
		"fail":     {"chart/templates/x.yaml": `{{ fail (printf "%s %s" .Values.token .Values.readable) }}`},
		"quoted":   {"chart/templates/x.yaml": `{{ fail (printf "%q %s" .Values.token .Values.readable) }}`},
		"base64":   {"chart/templates/x.yaml": `{{ fail (printf "%s %s" (.Values.token | b64enc) .Values.readable) }}`},
		"bad YAML": {"chart/templates/x.yaml": `"{{ .Values.readable }} {{ .Values.token }}`},
		"a file of the chart": {
			"chart/own.txt": k.seal(sops.Binary, "", "hunter2 of the chart"), "chart/templates/x.yaml": `{{ fail (printf "%s visible" (.Files.Get "own.txt")) }}`,
		},
		"a manifest": {"stack.yaml": components("- {name: shop, manifests: [m.yaml]}"), "m.yaml": k.seal(sops.YAML, "^k", "apiVersion: v1\nkind: \"hunter2 quoted\"\nvisible: 1\n")},
		"a patch": {
			"stack.yaml": components("- {name: shop, kustomize: {path: k}}"), "k/kustomization.yaml": "resources: [visible.yaml]\npatches: [{path: patch.yaml}]\n",
			"k/visible.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: visible}\n",
			"k/patch.yaml":   k.seal(sops.YAML, "^name$", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hunter2 quoted}\n"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{}
			for _, of := range []map[string]string{chart, files} {
				for name, content := range of {
					all[name] = content
				}
			}
			_, err := stacks.Decrypting(t.Context(), encryptedRequest(t, all), k.open, stacks.Render)
			if err == nil {
				t.Fatal("nothing is wrong with it")
			}
			said := err.Error()
			if one, ok := errors.AsType[*stacks.Error](err); ok && one.Err != nil {
				said += one.Err.Error()
			}
			for _, form := range []string{"hunter2", "quoted", b64("hunter2 \"quoted\" and more")} {
				if strings.Contains(said, form) {
					t.Errorf("it says %s", said)
				}
			}
			if strings.Contains(name, "fail") && !strings.Contains(said, "visible") {
				t.Errorf("what is readable is hidden, too: %s", said)
			}
		})
	}
}

// The digest tells keys apart, and not what follows from them.
func TestDigestOfEncrypted(t *testing.T) {
	digest := func(change func(*stacks.Request)) string {
		req := stacks.Request{Stack: "demo", SecretKey: []byte("test key")}
		change(&req)
		out, err := stacks.Digest(req)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	none := digest(func(*stacks.Request) {})
	one := digest(func(r *stacks.Request) { r.Keys = "1" })
	if two := digest(func(r *stacks.Request) { r.Keys = "2" }); one == none || two == none || one == two {
		t.Error("keys are not told apart")
	}
	if digest(func(r *stacks.Request) { r.Keys, r.Decrypted = "1", map[string][]byte{"a": []byte("b")} }) != one {
		t.Error("what follows from the keys is an input")
	}
	if digest(func(r *stacks.Request) { r.Decrypted = map[string][]byte{"a": []byte("b")} }) == none {
		t.Error("what is given without keys is no input")
	}
}

// What is remembered is decrypted once for the same keys, and is for nobody without them.
func TestRendererRemembersByKeys(t *testing.T) {
	k := newKeyPair(t)
	renders := 0
	r := stacks.NewRenderer(stacks.RendererOptions{OnRender: func(req stacks.Request, _ time.Duration, err error) {
		renders++
		if len(req.Decrypted) > 0 {
			t.Errorf("told of %d files that were decrypted, and of %v", len(req.Decrypted), err)
		}
	}})
	req := encryptedRequest(t, everyKind(k))
	req.Digest, req.Keys = "sha256:1", "own"
	first, err := r.RenderDecrypting(t.Context(), req, k.open)
	if err != nil || renders != 1 || len(k.opened) != len(everyEncrypted) {
		t.Fatalf("%v, %d renders, %d files decrypted", err, renders, len(k.opened))
	}
	again := func(why string, opened int) {
		t.Helper()
		k.opened = nil
		second, err := r.RenderDecrypting(t.Context(), req, k.open)
		if err != nil || len(k.opened) != opened || !reflect.DeepEqual(second.Components, first.Components) || !slices.Equal(second.Decrypted, everyEncrypted) {
			t.Errorf("%s: %v, %d files decrypted", why, err, len(k.opened))
		}
	}
	again("nothing changed", 0)
	req.Digest = "sha256:2"
	again("a revision that changed nothing that is read", 0)
	req.Keys = "others"
	again("other keys", len(everyEncrypted))
	req.Keys = ""
	if _, err := r.Render(t.Context(), req); !errors.As(err, new(*stacks.EncryptedError)) {
		t.Errorf("without keys: %v", err)
	}
}

// A new revision whose encrypted files are others is decrypted anew.
func TestRendererSeesOtherEncryptedFiles(t *testing.T) {
	k := newKeyPair(t)
	r := stacks.NewRenderer(stacks.RendererOptions{})
	files := map[string]string{"stack.yaml": components("- {name: plain, manifests: [a.yaml]}")}
	for i := range 3 {
		files["a.yaml"] = k.seal(sops.YAML, "^data$", fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {n: \"%d\"}\n", i))
		req := encryptedRequest(t, files)
		req.Digest, req.Keys = fmt.Sprintf("sha256:%d", i), "own"
		result, err := r.RenderDecrypting(t.Context(), req, k.open)
		if err != nil {
			t.Fatal(err)
		}
		if text := findObjectBy(t, result, "ConfigMap", "a"); !strings.Contains(text, fmt.Sprintf(`"n":"%d"`, i)) {
			t.Errorf("revision %d: %s", i, text)
		}
	}
}

// Decrypting ends, whatever a source and its keys come to.
func TestDecryptingIsBounded(t *testing.T) {
	root := writeTree(t, map[string]string{"a.yaml": "a: ENC[x]\nsops: {mac: x}\n"})
	plain := func(content string) stacks.Opener {
		return func(context.Context, string, sops.Format, []byte) ([]byte, error) { return []byte(content), nil }
	}
	met := func(files ...string) error {
		e := &stacks.EncryptedError{}
		for _, f := range files {
			e.Files = append(e.Files, stacks.EncryptedFile{Component: "c", File: f})
		}
		return e
	}
	many := make([]string, stacks.MaxDecryptedFiles+1)
	for i := range many {
		many[i] = fmt.Sprintf("%d.yaml", i)
		writeFile(t, filepath.Join(root, many[i]), "sops: {mac: x}\n")
	}
	round := 0
	for name, tc := range map[string]struct {
		open   stacks.Opener
		render func() error
		reason sops.Reason
		said   string
	}{
		"the same again":   {plain("a: 1"), func() error { return met("a.yaml") }, sops.Broken, "met encrypted all the same"},
		"always another":   {plain("a: 1"), func() error { round++; return met(many[round]) }, sops.FileInvalid, "more than 16 times"},
		"too many":         {plain("a: 1"), func() error { return met(many...) }, sops.FileInvalid, "more than 1000 files"},
		"too much":         {plain(strings.Repeat("x", stacks.MaxDecryptedBytes+1)), func() error { return met("a.yaml") }, sops.FileInvalid, "more than 33554432 bytes"},
		"encrypted twice":  {plain("a: ENC[x]\nsops: {mac: x}\n"), func() error { return met("a.yaml") }, sops.FileInvalid, "it is encrypted twice"},
		"values as a file": {plain("a: 1"), func() error { return met("") }, sops.Broken, "met encrypted all the same"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stacks.Decrypting(t.Context(), stacks.Request{Root: root}, tc.open, func(context.Context, stacks.Request) (stacks.Result, error) { return stacks.Result{}, tc.render() })
			cipher, ok := errors.AsType[*sops.Error](err)
			if !ok || cipher.Reason != tc.reason || !strings.Contains(err.Error(), tc.said) {
				t.Errorf("%T %v", err, err)
			}
		})
	}
	_, err := stacks.Decrypting(t.Context(), stacks.Request{Root: root}, plain(""), func(context.Context, stacks.Request) (stacks.Result, error) {
		return stacks.Result{}, met("../outside")
	})
	if err == nil {
		t.Errorf("outside of the source: %v", err)
	}
}
