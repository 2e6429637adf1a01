package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// chartRepository serves the chart "web" 1.2.3. Clients have to send a password.
func chartRepository(t *testing.T) (url string, ca []byte) {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for name, text := range map[string]string{
		"web/Chart.yaml":       "apiVersion: v2\nname: web\nversion: 1.2.3\n",
		"web/templates/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-the-chart}\n",
	} {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pass, _ := r.BasicAuth(); pass != "hunter2" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/web.tgz" {
			_, _ = w.Write(b.Bytes())
			return
		}
		_, _ = fmt.Fprintf(w, "entries: {web: [{version: 1.2.3, digest: %s, urls: [web.tgz]}]}\n",
			hex.EncodeToString(sum[:]))
	}))
	t.Cleanup(server.Close)
	return server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// login are the flags with the credentials and the CA of the repository.
var login = []string{"--secret", "login/username=user", "--secret", "login/password=password", "--secret",
	"ca/ca.crt=ca.crt"}

func TestRenderFetchesCharts(t *testing.T) {
	url, ca := chartRepository(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"stacks/shop/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: shop}\nspec:\n  " +
			"version: 1.0.0\n  components:\n" +
			"  - {name: web, version: 1.2.3, helm: {repository: '" + url + "', name: web}}\n",
		"clusters/shop.yaml": "apiVersion: apps.ksctl.com/v1\nkind: KsctlInstall\nmetadata: {name: shop, namespace: " +
			"shop}\nspec:\n" +
			"  sourceRef: {kind: GitRepository, name: fleet}\n  path: stacks\n  stack: shop\n" +
			"  charts: [{repository: '" + url + "', secretRef: {name: login}, certSecretRef: {name: ca}}]\n",
		"user": "me", "password": "hunter2", "ca.crt": string(ca), "wrong": "letmein",
	})
	t.Chdir(dir)
	t.Setenv("TMPDIR", t.TempDir())
	render := func(args ...string) string {
		return run(t, append([]string{"render", "-f", "clusters/shop.yaml"}, args...)...)
	}
	if got := render(login...); !strings.Contains(got, "name: from-the-chart") {
		t.Error(got)
	}
	if got := render(append([]string{"-o", "json"}, login...)...); !strings.Contains(got, `"digest": "sha256:`) ||
		!strings.Contains(got, url) {
		t.Error(got)
	}
	for want, args := range map[string][]string{
		`error: component "web": chart web 1.2.3 of ` + url +
			` must be fetched, which --offline forbids`: {"--offline"},
		`error: spec.charts of the install uses Secret login for ` + url +
			`; set --secret login/KEY=FILE for each of its keys`: nil,
		`error: component "web": chart web 1.2.3 of ` + url +
			`: access to the index of the repository is denied: the repository answered 401 Unauthorized`: {"--secret",
			"login/username=user", "--secret", "login/password=wrong", "--secret", "ca/ca.crt=ca.crt"},
		`error: --secret login: name/key=file is expected`: {"--secret", "login"},
	} {
		if got := render(args...); !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("temporary files remain: %v, %v", left, err)
	}
	want := `stack shop 1.0.0
warning: clusters/shop.yaml:1: component "web": chart web 1.2.3 of ` +
		url + ` is not fetched here, so neither it nor its values are checked
1 stack, 1 install: ok
`
	if got := run(t, "validate"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A chart in the source that depends on a chart in a repository is rendered with it.
func TestRenderFetchesChartDependencies(t *testing.T) {
	url, ca := chartRepository(t)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"stacks/shop/stack.yaml": "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: shop}\nspec:\n  " +
			"version: 1.0.0\n  components:\n" +
			"  - {name: main, helm: {chart: chart}}\n",
		"stacks/shop/chart/Chart.yaml": "apiVersion: v2\nname: main\nversion: 1.0.0\ndependencies:\n- {name: web, " +
			"version: ^1.2.0, repository: '" + url + "/'}\n",
		"stacks/shop/chart/Chart.lock": "dependencies:\n- {name: web, version: 1.2.3, repository: '" + url + "/'}\n",
		"clusters/shop.yaml": "apiVersion: apps.ksctl.com/v1\nkind: KsctlInstall\nmetadata: {name: shop, namespace: " +
			"shop}\nspec:\n" +
			"  sourceRef: {kind: GitRepository, name: fleet}\n  path: stacks\n  stack: shop\n" +
			"  charts: [{repository: '" + url + "', secretRef: {name: login}, certSecretRef: {name: ca}}]\n",
		"user": "me", "password": "hunter2", "ca.crt": string(ca),
	})
	t.Chdir(dir)
	render := []string{"render", "-f", "clusters/shop.yaml"}
	if got := run(t, append(render, login...)...); !strings.Contains(got, "name: from-the-chart") {
		t.Error(got)
	}
	description := "chart web 1.2.3 of " + url + "/ (which stacks/shop/chart depends on)"
	if got := run(t, append(render, append(login, "-o", "json")...)...); !strings.Contains(got,
		`"chartDependencies": [`) || !strings.Contains(got, `"digest": "sha256:`) {
		t.Error(got)
	}
	want := `error: component "main": ` + description + " must be fetched, which --offline forbids\nexit 1\n"
	if got := run(t, append(render, "--offline")...); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `stack shop 1.0.0
warning: clusters/shop.yaml:1: component "main": ` +
		description + ` is not fetched here, so neither stacks/shop/chart nor its values are checked
1 stack, 1 install: ok
`
	if got := run(t, "validate"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if err := os.Remove("stacks/shop/chart/Chart.lock"); err != nil {
		t.Fatal(err)
	}
	want = `stacks/shop/chart/Chart.yaml: component "main": the chart depends on web, which is not in its folder charts/, and there is no Chart.lock with its version; ` +
		"run helm dependency update and commit Chart.lock, or vendor it (helm dependency build) and commit it"
	for _, args := range [][]string{{"validate"}, append(render, login...), append(render, "--offline")} {
		if got := run(t, args...); !strings.Contains(got, want) {
			t.Errorf("%v: got  %s\nwant %s", args, got, want)
		}
	}
}
