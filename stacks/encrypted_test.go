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

// keyPair encrypts and decrypts files.
type keyPair struct {
	t              testing.TB
	id             *age.X25519Identity
	decryptedFiles []string
}

func newKeyPair(t testing.TB) *keyPair {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return &keyPair{t: t, id: id}
}

// encrypt encrypts the values whose key matches regex, or all values if regex is empty.
func (k *keyPair) encrypt(f sops.Format, regex, plain string) string {
	k.t.Helper()
	out, err := codec.Encrypt(k.t.Context(),
		sops.EncryptRequest{Data: []byte(plain), Format: f, Recipients: []string{k.id.Recipient().String()},
			EncryptedRegex: regex})
	if err != nil {
		k.t.Fatal(err)
	}
	return string(out)
}

// decrypt is a stacks.Decrypter.
func (k *keyPair) decrypt(ctx context.Context, name string, f sops.Format, data []byte) ([]byte, error) {
	k.decryptedFiles = append(k.decryptedFiles, name)
	return codec.Decrypt(ctx,
		sops.Request{Name: name, Data: data, Format: f, Secret: map[string][]byte{"own.agekey": []byte(k.id.String())}})
}

// allComponentKinds returns a stack with encrypted files at all places where a render reads files.
func allComponentKinds(k *keyPair) map[string]string {
	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: plain}\nstringData: {token: hunter2-manifest}\n"
	return map[string]string{
		"stack.yaml": components(
			"- {name: plain, manifests: [plain]}",
			"- {name: made, kustomize: {path: made}}",
			"- {name: shop, helm: {chart: chart, valuesFiles: [shop.yaml]}}",
		),
		"plain/secret.yaml": k.encrypt(sops.YAML, "^(data|stringData)$", secret),
		"plain/about.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: about}\ndata: {sops: none}\n",
		"made/kustomization.yaml": "resources: [config.json]\nsecretGenerator:\n- {name: env, envs: [made.env]}\n" +
			"- {name: file, files: [token.txt, conf=settings.ini, creds]}\n",
		"made/config.json": k.encrypt(sops.JSON, "^data$",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config"},"data":{"a":"hunter2-json"}}`),
		"made/made.env":     k.encrypt(sops.Dotenv, "", "TOKEN=hunter2-env\n"),
		"made/token.txt":    k.encrypt(sops.Binary, "", "hunter2-binary"),
		"made/settings.ini": k.encrypt(sops.INI, "", "[a]\nb = hunter2-ini\n"),
		"made/creds":        k.encrypt(sops.Dotenv, "", "A=hunter2-nameless\n"),
		"shop.yaml":         k.encrypt(sops.YAML, "", "token: hunter2-values\n"),
		"chart/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml": k.encrypt(sops.YAML, "", "token: ''\nown: hunter2-chart\n"),
		"chart/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\ndata: {token: {{ " +
			".Values.token }}, own: {{ .Values.own }}}\n",
		"chart/README.md":           "Encrypt it, with sops: as in this one:\n\nsops:\n  mac: ENC[AES256_GCM]\n",
		"unread/other.yaml":         newKeyPair(k.t).encrypt(sops.YAML, "", "a: 1\n"),
		"plain/not-a-manifest.conf": newKeyPair(k.t).encrypt(sops.Binary, "", "a"),
	}
}

func encryptedRequest(t testing.TB, files map[string]string) stacks.Request {
	t.Helper()
	return stacks.Request{Stack: "demo", Root: writeTree(t, files),
		Capabilities: stacks.Capabilities{KubeVersion: "v1.30.0"},
		Install:      stacks.Identity{Namespace: "team", Name: "site"}, SecretKey: []byte("test key")}
}

var allEncryptedFiles = []string{"chart/values.yaml", "made/config.json", "made/creds", "made/made.env",
	"made/settings.ini", "made/token.txt", "plain/secret.yaml", "shop.yaml"}

// Every kind of component reads the decrypted content of its files. Files that are not read are not
// decrypted.
func TestRenderDecryptsFilesThatItReads(t *testing.T) {
	k := newKeyPair(t)
	req := encryptedRequest(t, allComponentKinds(k))
	result, err := stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Sort(k.decryptedFiles); !slices.Equal(k.decryptedFiles, allEncryptedFiles) ||
		!slices.Equal(result.Decrypted, allEncryptedFiles) {
		t.Errorf("decrypted %q, but the result lists %q", k.decryptedFiles, result.Decrypted)
	}
	var text bytes.Buffer
	if err := result.WriteYAML(&text); err != nil {
		t.Fatal(err)
	}
	for _, plain := range []string{"hunter2-manifest", "hunter2-json", b64("hunter2-env"), b64("hunter2-binary"),
		"hunter2-values", "hunter2-chart", "sops: none"} {
		if !strings.Contains(text.String(), plain) {
			t.Errorf("%s is not in the result:\n%s", plain, text.String())
		}
	}
	for _, file := range []string{"creds", "conf"} {
		manifest := findManifestByPrefix(t, result, "Secret", "file-")
		if !strings.Contains(manifest, `"`+file+`"`) {
			t.Errorf("no %s in %s", file, manifest)
		}
	}
	if strings.Contains(text.String(), "ENC[") {
		t.Errorf("the result has encrypted content:\n%s", text.String())
	}
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// findManifestByPrefix returns the manifest of the first object of a kind with a name prefix.
func findManifestByPrefix(t *testing.T, result stacks.Result, kind, prefix string) string {
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

// Without the decrypted content, the error of a render lists all encrypted files with their
// components.
func TestRenderWithoutKeysListsEncryptedFiles(t *testing.T) {
	k := newKeyPair(t)
	req := encryptedRequest(t, allComponentKinds(k))
	_, err := stacks.Render(t.Context(), req)
	met, ok := errors.AsType[*stacks.EncryptedError](err)
	if !ok {
		t.Fatalf("%T %v", err, err)
	}
	var files []string
	for _, f := range met.Files {
		files = append(files, f.File)
	}
	if !slices.Equal(files, allEncryptedFiles) {
		t.Errorf("encrypted files: %q", files)
	}
	want := `component "shop": file chart/values.yaml; component "made": file made/config.json; component "made": file made/creds; ` +
		`component "made": file made/made.env; component "made": file made/settings.ini; and 3 more: they are encrypted with SOPS, but no decryption keys are given`
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}

	no := false
	req.Choices.Components = []stacks.ComponentChoice{{Name: "shop", Enabled: &no}, {Name: "made", Enabled: &no}}
	_, err = stacks.Render(t.Context(), req)
	if want := `component "plain": file plain/secret.yaml: it is encrypted with SOPS, but no decryption keys are given`; err == nil || err.Error() != want {
		t.Errorf("files of disabled components must not be listed: %v", err)
	}
	req.Choices.Components = append(req.Choices.Components, stacks.ComponentChoice{Name: "plain", Enabled: &no})
	if _, err := stacks.Render(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// Load and Resolve also return an EncryptedError, instead of encrypted content.
func TestLoadAndResolveReturnEncryptedError(t *testing.T) {
	k := newKeyPair(t)
	root := writeTree(t, allComponentKinds(k))
	def, err := stacks.Load(root, ".", "demo")
	if err != nil {
		t.Fatal(err)
	}
	_, err = stacks.Resolve(t.Context(), def, stacks.Identity{}, stacks.Choices{})
	if met, ok := errors.AsType[*stacks.EncryptedError](err); !ok ||
		!slices.Contains(met.Files, stacks.EncryptedFile{Component: "shop", File: "shop.yaml"}) {
		t.Errorf("%T %v", err, err)
	}
	files := allComponentKinds(k)
	files["made/kustomization.yaml"] = k.encrypt(sops.YAML, "", files["made/kustomization.yaml"])
	if _, err = stacks.Load(writeTree(t, files), ".", "demo"); !errors.As(err, new(*stacks.EncryptedError)) {
		t.Errorf("%T %v", err, err)
	}
	// The files that an encrypted kustomization references are found only after its decryption.
	req := encryptedRequest(t, files)
	if result, err := stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render); err != nil ||
		len(result.Decrypted) != len(allEncryptedFiles)+1 {
		t.Errorf("%q, %v", result.Decrypted, err)
	}
}

func TestEncryptedStackFileIsRejected(t *testing.T) {
	k := newKeyPair(t)
	files := allComponentKinds(k)
	files["stack.yaml"] = k.encrypt(sops.YAML, "^description$", files["stack.yaml"])
	req := encryptedRequest(t, files)
	_, err := stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render)
	if err == nil || !strings.HasPrefix(err.Error(), "stack.yaml: a stack file must not be encrypted") ||
		len(k.decryptedFiles) > 0 {
		t.Errorf("%v, after %q", err, k.decryptedFiles)
	}
}

// The error for a file that cannot be decrypted has the component and the type of failure.
func TestWrongKeyReturnsKeyMissing(t *testing.T) {
	k, other := newKeyPair(t), newKeyPair(t)
	files := allComponentKinds(k)
	files["stack.yaml"] = components("- {name: plain, manifests: [plain]}")
	_, err := stacks.RenderWithDecryption(t.Context(), encryptedRequest(t, files), other.decrypt, stacks.Render)
	cipher, ok := errors.AsType[*sops.Error](err)
	if !ok || cipher.Reason != sops.KeyMissing ||
		!strings.HasPrefix(err.Error(), `component "plain": file plain/secret.yaml: `) {
		t.Errorf("%T %v", err, err)
	}
}

// Request.Decrypted replaces only the content of encrypted files.
func TestOnlyEncryptedFilesAreReplaced(t *testing.T) {
	files := map[string]string{"stack.yaml": components("- {name: plain, manifests: [a.yaml]}"),
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nsops: {version: 3}\n"}
	req := encryptedRequest(t, files)
	want := asJSON(t, mustRender(t, req).Components)
	req.Decrypted = map[string][]byte{"a.yaml": []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"),
		"stack.yaml": []byte("x")}
	result := mustRender(t, req)
	if got := asJSON(t, result.Components); got != want || len(result.Decrypted) > 0 {
		t.Errorf("got %s", got)
	}
}

// Values of an install are decrypted, from ConfigMaps and Secrets, and are not public afterwards.
func TestEncryptedValuesAreDecryptedAndRedacted(t *testing.T) {
	k := newKeyPair(t)
	files := map[string]string{
		"stack.yaml":        components("- {name: shop, helm: {chart: chart}}"),
		"chart/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml": "a: ''\nb: ''\n",
		"chart/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n" +
			"data: {a: {{ .Values.a }}, b: {{ .Values.b }}}\n",
	}
	req := encryptedRequest(t, files)
	req.Choices.Values = []stacks.ValuesInput{
		{Component: "shop", Source: "ConfigMap site, key values.yaml", Public: true,
			Data: []byte(k.encrypt(sops.YAML, "", "a: hunter2-yaml\n"))},
		{Component: "shop", Source: "Secret site, key values.json",
			Data: []byte(k.encrypt(sops.JSON, "", `{"b": "hunter2-json"}`))},
	}
	_, err := stacks.Render(t.Context(), req)
	if want := `component "shop": ConfigMap site, key values.yaml; component "shop": Secret site, key values.json: they are encrypted with SOPS, but no decryption keys are given`; err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	result, err := stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render)
	if err != nil {
		t.Fatal(err)
	}
	if text := findManifestByPrefix(t, result, "ConfigMap", "shop"); !strings.Contains(text, "hunter2-yaml") ||
		!strings.Contains(text, "hunter2-json") {
		t.Error(text)
	}
	if want := []string{"ConfigMap site, key values.yaml",
		"Secret site, key values.json"}; !slices.Equal(result.Decrypted, want) {
		t.Errorf("%q", result.Decrypted)
	}
	writeFile(t, filepath.Join(req.Root, "chart/templates/x.yaml"), "{{ fail .Values.a }}")
	if _, err = stacks.RenderWithDecryption(t.Context(), req, k.decrypt, stacks.Render); err == nil ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// Decrypted values are redacted in all messages of renderers. Plain values in the same file are
// not.
func TestDecryptedValuesAreRedacted(t *testing.T) {
	k := newKeyPair(t)
	const secret = "hunter2 \\\"quoted\\\" and more"
	chart := map[string]string{
		"stack.yaml":        components("- {name: shop, helm: {chart: chart, valuesFiles: [shop.yaml]}}"),
		"chart/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"chart/values.yaml": "token: ''\n",
		"shop.yaml":         k.encrypt(sops.YAML, "^token$", "token: \""+secret+"\"\nreadable: visible\n"),
	}
	for name, files := range map[string]map[string]string{
		"fail":     {"chart/templates/x.yaml": `{{ fail (printf "%s %s" .Values.token .Values.readable) }}`},
		"quoted":   {"chart/templates/x.yaml": `{{ fail (printf "%q %s" .Values.token .Values.readable) }}`},
		"base64":   {"chart/templates/x.yaml": `{{ fail (printf "%s %s" (.Values.token | b64enc) .Values.readable) }}`},
		"bad YAML": {"chart/templates/x.yaml": `"{{ .Values.readable }} {{ .Values.token }}`},
		"a file of the chart": {
			"chart/own.txt":          k.encrypt(sops.Binary, "", "hunter2 of the chart"),
			"chart/templates/x.yaml": `{{ fail (printf "%s visible" (.Files.Get "own.txt")) }}`,
		},
		"a manifest": {"stack.yaml": components("- {name: shop, manifests: [m.yaml]}"),
			"m.yaml": k.encrypt(sops.YAML, "^k", "apiVersion: v1\nkind: \"hunter2 quoted\"\nvisible: 1\n")},
		"a patch": {
			"stack.yaml":           components("- {name: shop, kustomize: {path: k}}"),
			"k/kustomization.yaml": "resources: [visible.yaml]\npatches: [{path: patch.yaml}]\n",
			"k/visible.yaml":       "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: visible}\n",
			"k/patch.yaml": k.encrypt(sops.YAML, "^name$",
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hunter2 quoted}\n"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := map[string]string{}
			for _, of := range []map[string]string{chart, files} {
				for name, content := range of {
					all[name] = content
				}
			}
			_, err := stacks.RenderWithDecryption(t.Context(), encryptedRequest(t, all), k.decrypt, stacks.Render)
			if err == nil {
				t.Fatal("the render succeeded")
			}
			text := err.Error()
			if one, ok := errors.AsType[*stacks.Error](err); ok && one.Err != nil {
				text += one.Err.Error()
			}
			for _, form := range []string{"hunter2", "quoted", b64("hunter2 \"quoted\" and more")} {
				if strings.Contains(text, form) {
					t.Errorf("the error contains a secret value: %s", text)
				}
			}
			if strings.Contains(name, "fail") && !strings.Contains(text, "visible") {
				t.Errorf("the plain value is redacted: %s", text)
			}
		})
	}
}

// The digest depends on the key ID, but not on content that follows from the keys.
func TestDigestDependsOnKeysNotOnDecryptedContent(t *testing.T) {
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
	one := digest(func(r *stacks.Request) { r.DecryptionKeyID = "1" })
	if two := digest(func(r *stacks.Request) { r.DecryptionKeyID = "2" }); one == none || two == none || one == two {
		t.Error("different keys have the same digest")
	}
	if digest(func(r *stacks.Request) {
		r.DecryptionKeyID, r.Decrypted = "1", map[string][]byte{"a": []byte("b")}
	}) != one {
		t.Error("decrypted content with a key ID changes the digest")
	}
	if digest(func(r *stacks.Request) { r.Decrypted = map[string][]byte{"a": []byte("b")} }) == none {
		t.Error("decrypted content without a key ID does not change the digest")
	}
}

// Cached results are reused for the same keys without decrypting again, and never without the keys.
func TestRendererCachesByDecryptionKeyID(t *testing.T) {
	k := newKeyPair(t)
	renders := 0
	r := stacks.NewRenderer(stacks.RendererOptions{OnRender: func(req stacks.Request, _ time.Duration, err error) {
		renders++
		if len(req.Decrypted) > 0 {
			t.Errorf("OnRender got %d decrypted files, error %v", len(req.Decrypted), err)
		}
	}})
	req := encryptedRequest(t, allComponentKinds(k))
	req.Digest, req.DecryptionKeyID = "sha256:1", "own"
	first, err := r.RenderWithDecryption(t.Context(), req, k.decrypt)
	if err != nil || renders != 1 || len(k.decryptedFiles) != len(allEncryptedFiles) {
		t.Fatalf("%v, %d renders, %d files decrypted", err, renders, len(k.decryptedFiles))
	}
	again := func(why string, opened int) {
		t.Helper()
		k.decryptedFiles = nil
		second, err := r.RenderWithDecryption(t.Context(), req, k.decrypt)
		if err != nil || len(k.decryptedFiles) != opened || !reflect.DeepEqual(second.Components, first.Components) ||
			!slices.Equal(second.Decrypted, allEncryptedFiles) {
			t.Errorf("%s: %v, %d files decrypted", why, err, len(k.decryptedFiles))
		}
	}
	again("nothing changed", 0)
	req.Digest = "sha256:2"
	again("a revision without changes to files that are read", 0)
	req.DecryptionKeyID = "others"
	again("other keys", len(allEncryptedFiles))
	req.DecryptionKeyID = ""
	if _, err := r.Render(t.Context(), req); !errors.As(err, new(*stacks.EncryptedError)) {
		t.Errorf("without keys: %v", err)
	}
}

// A revision with changed encrypted files is decrypted again.
func TestRendererDecryptsChangedFiles(t *testing.T) {
	k := newKeyPair(t)
	r := stacks.NewRenderer(stacks.RendererOptions{})
	files := map[string]string{"stack.yaml": components("- {name: plain, manifests: [a.yaml]}")}
	for i := range 3 {
		files["a.yaml"] = k.encrypt(sops.YAML, "^data$",
			fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {n: \"%d\"}\n", i))
		req := encryptedRequest(t, files)
		req.Digest, req.DecryptionKeyID = fmt.Sprintf("sha256:%d", i), "own"
		result, err := r.RenderWithDecryption(t.Context(), req, k.decrypt)
		if err != nil {
			t.Fatal(err)
		}
		if text := findManifestByPrefix(t, result, "ConfigMap", "a"); !strings.Contains(text,
			fmt.Sprintf(`"n":"%d"`, i)) {
			t.Errorf("revision %d: %s", i, text)
		}
	}
}

// Decryption ends after a bounded number of files, bytes and rounds.
func TestRenderWithDecryptionIsBounded(t *testing.T) {
	root := writeTree(t, map[string]string{"a.yaml": "a: ENC[x]\nsops: {mac: x}\n"})
	plain := func(content string) stacks.Decrypter {
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
		open   stacks.Decrypter
		render func() error
		reason sops.Reason
		text   string
	}{
		"the same again": {plain("a: 1"), func() error {
			return met("a.yaml")
		}, sops.InternalFailure, "still encrypted after decryption"},
		"always another": {plain("a: 1"), func() error {
			round++
			return met(many[round])
		}, sops.FileInvalid, "more than 16 levels deep"},
		"too many": {plain("a: 1"), func() error {
			return met(many...)
		}, sops.FileInvalid, "more than 1000 files"},
		"too much": {plain(strings.Repeat("x", stacks.MaxDecryptedBytes+1)), func() error {
			return met("a.yaml")
		}, sops.FileInvalid, "more than 33554432 bytes"},
		"encrypted twice": {plain("a: ENC[x]\nsops: {mac: x}\n"), func() error {
			return met("a.yaml")
		}, sops.FileInvalid, "the content is encrypted twice"},
		"values as a file": {plain("a: 1"), func() error {
			return met("")
		}, sops.InternalFailure, "still encrypted after decryption"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stacks.RenderWithDecryption(t.Context(), stacks.Request{Root: root}, tc.open,
				func(context.Context, stacks.Request) (stacks.Result, error) { return stacks.Result{}, tc.render() })
			cipher, ok := errors.AsType[*sops.Error](err)
			if !ok || cipher.Reason != tc.reason || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%T %v", err, err)
			}
		})
	}
	_, err := stacks.RenderWithDecryption(t.Context(), stacks.Request{Root: root}, plain(""), func(context.Context,
		stacks.Request) (stacks.Result, error) {
		return stacks.Result{}, met("../outside")
	})
	if err == nil {
		t.Error("a file outside of the source was accepted")
	}
}
