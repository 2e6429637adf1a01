package build_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/ksctl/gitops/internal/workers/build"
)

// pushFiles pushes files as a script, the first of which is main.
func pushFiles(t *testing.T, names []string, contents map[string]string) (format string, err error) {
	t.Helper()
	s, b := newServer(t), newBuilder()
	served := map[string]string{}
	for name, content := range contents {
		served["/"+name] = content
	}
	url, _ := serveFiles(t, served)
	script := build.Script{Name: "a"}
	for _, name := range names {
		script.URLs = append(script.URLs, url+"/"+name)
	}
	if _, err = b.Push(t.Context(), s.host+"/acme/a:1", script); err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(files(t, pull(t, s.host+"/acme/a:1"))["workers/a/worker.json"], `"format":"`)
	format, _, _ = strings.Cut(rest, `"`)
	return format, nil
}

func TestFormatOfScript(t *testing.T) {
	for name, tc := range map[string]struct {
		files   []string // the contents of the files of names
		names   []string
		want    string
		refused string
	}{
		"module":          {files: []string{module}, want: "module"},
		"named default":   {files: []string{`const h = {fetch() {}}; export { h as default }; import x from "./b.wasm"`}, want: "module"},
		"exported class":  {files: []string{`export default class {}`}, want: "module"},
		"service worker":  {files: []string{`addEventListener("fetch", e => e.respondWith(new Response(KEY)))`}, want: "serviceWorker"},
		"in a function":   {files: []string{`(() => { self . addEventListener ("fetch", f) })(); function f() {}`}, want: "serviceWorker"},
		"wasm":            {files: []string{"\x00asm"}, names: []string{"a.wasm"}, want: "wasi"},
		"module and data": {files: []string{module, "{}"}, names: []string{"a.js", "b.json"}, want: "module"},
		"globals": {files: []string{`addEventListener("fetch", f)`, "\x00asm"}, names: []string{"a.js", "b.wasm"},
			want: "serviceWorker"},

		"large":              {files: []string{strings.Repeat(" ", 10<<20+1)}, refused: "10485760 are allowed"},
		"no handler":         {files: []string{`const x = 1`}, refused: "script a.js handles no requests"},
		"only in a comment":  {files: []string{`/* addEventListener("fetch", f) */ f()`}, refused: "handles no requests"},
		"another method":     {files: []string{`socket.addEventListener("fetch", f)`}, refused: "handles no requests"},
		"no default":         {files: []string{`export const fetch = 1`}, refused: "script a.js has no default export"},
		"import only":        {files: []string{`import "./b.js"; addEventListener("fetch", f)`}, refused: "has no default export"},
		"CommonJS":           {files: []string{`module.exports = {fetch() {}}`}, refused: "handles no requests"},
		"mjs without module": {files: []string{`addEventListener("fetch", f)`}, names: []string{"a.mjs"}, refused: "no default export"},
		"syntax error":       {files: []string{"export default {\n  fetch( { }"}, refused: "a.js, line 2, column"},
		"TypeScript":         {files: []string{module}, names: []string{"a.ts"}, refused: "must be compiled"},
		"text":               {files: []string{"x"}, names: []string{"a.txt"}, refused: "the first file must be"},
		"reserved name": {files: []string{module, "x"}, names: []string{"a.js", "worker.json"},
			refused: "reserved"},
		"hidden file": {files: []string{module, "x"}, names: []string{"a.js", ".env"}, refused: "is invalid"},
		"wasm before script": {files: []string{"\x00asm", module}, names: []string{"a.wasm", "a.js"},
			refused: "list the script before"},
		"script of a service worker": {files: []string{`addEventListener("fetch", f)`, module},
			names: []string{"a.js", "b.js"}, refused: "cannot import b.js"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.names == nil {
				tc.names = []string{"a.js"}
			}
			contents := map[string]string{}
			for i, n := range tc.names {
				contents[n] = tc.files[i]
			}
			got, err := pushFiles(t, tc.names, contents)
			switch {
			case tc.refused == "":
				if err != nil || got != tc.want {
					t.Errorf("got %q, %v", got, err)
				}
			case !build.IsTerminal(err) || !strings.Contains(err.Error(), tc.refused):
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestPushRefusesInvalidScripts(t *testing.T) {
	b := newBuilder()
	for want, script := range map[string]build.Script{
		`script name "A"`:                {Name: "A", URLs: []string{"http://x/a.js"}},
		"has no URL":                     {Name: "a"},
		`compatibility date "yesterday"`: {Name: "a", CompatibilityDate: "yesterday", URLs: []string{"http://x/a.js"}},
	} {
		_, err := b.Push(t.Context(), "127.0.0.1:1/acme/a:1", script)
		if !build.IsTerminal(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestDownloadErrors(t *testing.T) {
	other := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	mux := http.NewServeMux()
	for path, status := range map[string]int{"/missing.js": 404, "/secret.js": 403, "/busy.js": 503,
		"/limited.js": 429} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	}
	mux.HandleFunc("/large.js", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1001))
	})
	mux.HandleFunc("/half/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 800))
	})
	mux.Handle("/elsewhere.js", http.RedirectHandler(other.URL+"/a.js?token=hidden", http.StatusFound))
	mux.Handle("/loop.js", http.RedirectHandler("/loop.js", http.StatusFound))
	mux.HandleFunc("/slow.js", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "http://")
	for name, tc := range map[string]struct {
		urls     []string
		terminal bool
		want     string
	}{
		"missing": {[]string{"http://me:hidden@" + address + "/missing.js?token=hidden"}, true,
			address + "/missing.js: the server responded with status 404"},
		"forbidden":       {[]string{s.URL + "/secret.js"}, true, "403"},
		"busy":            {[]string{s.URL + "/busy.js"}, false, "503"},
		"limited":         {[]string{s.URL + "/limited.js"}, false, "429"},
		"large":           {[]string{s.URL + "/large.js"}, true, "large.js is too large: a file has at most 1000"},
		"large in total":  {[]string{s.URL + "/half/a", s.URL + "/half/b"}, true, "/half/b is too large"},
		"another scheme":  {[]string{s.URL + "/elsewhere.js"}, true, "redirects from http to https"},
		"redirect loop":   {[]string{s.URL + "/loop.js"}, true, "more than 10 times"},
		"timeout":         {[]string{s.URL + "/slow.js?token=hidden"}, false, "deadline exceeded"},
		"unreachable":     {[]string{"http://127.0.0.1:1/a.js?token=hidden"}, false, "connection refused"},
		"same names":      {[]string{s.URL + "/half/a?token=hidden", s.URL + "/half/b/a"}, true, "the same file name"},
		"another file":    {[]string{"file:///etc/passwd"}, true, "URL 1 of the script is invalid"},
		"not a URL":       {[]string{"http://hidden:hidden@[/x"}, true, "URL 1 of the script is invalid"},
		"missing S3 host": {[]string{"s3:///key"}, true, "URL 1 of the script is invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &build.Downloader{Timeout: 300 * time.Millisecond, MaxFile: 1000, MaxTotal: 1500}
			_, err := d.Download(t.Context(), tc.urls)
			if err == nil || build.IsTerminal(err) != tc.terminal || !strings.Contains(err.Error(), tc.want) ||
				strings.Contains(err.Error(), "hidden") {
				t.Errorf("%v, terminal %t", err, build.IsTerminal(err))
			}
		})
	}
}

func TestDownloadFromS3(t *testing.T) {
	backend := s3mem.New()
	s := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(s.Close)
	if err := backend.CreateBucket("scripts"); err != nil {
		t.Fatal(err)
	}
	if _, err := backend.PutObject("scripts", "v1/a.js", nil, strings.NewReader(module), int64(len(module)),
		nil); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	d := &build.Downloader{Timeout: time.Minute, S3Endpoint: s.URL}
	files, err := d.Download(t.Context(), []string{"s3://scripts/v1/a.js"})
	if err != nil || len(files) != 1 || files[0].Name != "a.js" || string(files[0].Content) != module {
		t.Errorf("%v, %v", files, err)
	}
	for url, want := range map[string]string{"s3://scripts/v1/b.js": "s3://scripts/v1/b.js: NoSuchKey",
		"s3://other/a.js": "NoSuchBucket"} {
		if _, err := d.Download(t.Context(), []string{url}); !build.IsTerminal(err) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
	s.Close()
	if _, err := d.Download(t.Context(), []string{"s3://scripts/v1/a.js"}); err == nil || build.IsTerminal(err) {
		t.Errorf("an unreachable server: %v", errors.Unwrap(err))
	}
}
