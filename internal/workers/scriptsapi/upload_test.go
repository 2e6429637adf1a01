package scriptsapi

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

var testLimits = uploadLimits{file: 1000, total: 1500, maxDate: "2026-11-17"}

func parse(meta string, parts ...part) (*upload, error) {
	contentType, body := form(meta, parts...)
	return parseUpload(contentType, body, testLimits)
}

func TestParseUploadAccepts(t *testing.T) {
	main := part{"index.js", typeModule, script1}
	for name, tc := range map[string]struct {
		meta  string
		parts []part
		want  []string
	}{
		"modules of all types, sorted behind the main one": {`{"main_module": "index.js"}`, []part{
			{"z.txt", "text/plain; charset=utf-8", "z"}, {"a.html", "text/html", "a"}, main, {"j.json", typeJSON, "{}"},
			{"b.bin", typeData, "b"}, {"w.wasm", typeWASM, "w"}, {"c.cjs", typeJavaScript, "c"},
			{"./m.mjs", "text/javascript+module", "m"}}, []string{"index.js", "a.html", "b.bin", "c.cjs", "j.json",
			"m.mjs", "w.wasm", "z.txt"}},
		"a main module without extension": {`{"main_module": "hello"}`, []part{{"hello", typeModule, script1}}, []string{"hello.mjs"}},
		"a service worker":                {`{"body_part": "script"}`, []part{{"script", "text/javascript", "x"}}, []string{"script.js"}},
		"a WASI program":                  {`{"main_module": "a.wasm"}`, []part{{"a.wasm", typeWASM, "x"}}, []string{"a.wasm"}},
		"a latest date":                   {`{"main_module": "index.js", "compatibility_date": "2026-11-17"}`, []part{main}, []string{"index.js"}},
		"fields that turn off, or describe": {`{"main_module": "index.js", "compatibility_flags": [], "logpush": false,
			"placement": {}, "tail_consumers": null, "annotations": {"workers/message": "m"}, "observability": {"enabled": true},
			"keep_bindings": ["secret_text"], "usage_model": "standard"}`, []part{main}, []string{"index.js"}},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := parse(tc.meta, tc.parts...)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, m := range u.modules {
				names = append(names, m.name)
			}
			if strings.Join(names, " ") != strings.Join(tc.want, " ") {
				t.Errorf("got %v, want %v", names, tc.want)
			}
		})
	}
}

func TestParseUploadRefuses(t *testing.T) {
	const meta = `{"main_module": "index.js"}`
	main := part{"index.js", typeModule, script1}
	var many []part
	for i := range maxModules + 1 {
		many = append(many, part{fmt.Sprintf("p%d.txt", i), typeText, ""})
	}
	binding := func(b string) string { return `{"main_module": "index.js", "bindings": [` + b + `]}` }
	for name, tc := range map[string]struct {
		meta         string
		parts        []part
		status, code int
		want         string
	}{
		"no metadata":        {"", []part{main}, 400, codeInvalid, `no part "metadata"`},
		"metadata no object": {"[1]", []part{main}, 400, codeInvalid, "no JSON object"},
		"metadata type":      {`{"main_module": 1}`, []part{main}, 400, codeInvalid, "a wrong type"},
		"no main module":     {`{}`, []part{main}, 400, codeInvalid, "none or both of main_module and body_part"},
		"two main modules":   {`{"main_module": "index.js", "body_part": "index.js"}`, []part{main}, 400, codeInvalid, "none or both"},
		"missing part":       {`{"main_module": "a.js"}`, []part{main}, 400, codeInvalid, `no part "a.js"`},
		"similar part":       {`{"main_module": "index"}`, []part{main}, 400, codeInvalid, `no part "index"`},
		"duplicate":          {meta, []part{main, main}, 400, codeInvalid, `part "index.js" occurs twice`},
		"duplicate with ./":  {meta, []part{main, {"./index.js", typeModule, "x"}}, 400, codeInvalid, "occurs twice"},
		"duplicate after": {`{"main_module": "a"}`, []part{{"a", typeModule, "x"}, {"a.mjs", typeModule, "x"}}, 400,
			codeInvalid, "module a.mjs occurs twice"},
		"no type": {meta, []part{{"index.js", "", "x"}}, 400, codeInvalid, "no valid Content-Type"},
		"unknown type": {meta, []part{main, {"a.png", "image/png", "x"}}, 400, codeInvalid,
			"unknown type image/png"},
		"source map": {meta, []part{main, {"a.map", typeSourceMap, "x"}}, 400, codeInvalid,
			"upload_source_maps = false"},
		"Python": {meta, []part{main, {"a.py", typePython, "x"}}, 400, codeInvalid,
			"JavaScript or WebAssembly"},
		"TypeScript": {meta, []part{main, {"a.ts", typeData, "x"}}, 400, codeInvalid, "must be compiled"},
		"extension":  {meta, []part{main, {"a.txt", typeWASM, "x"}}, 400, codeInvalid, `the extension ".txt": use .wasm`},
		"data as module": {meta, []part{main, {"a.js", typeData, "x"}}, 400, codeInvalid,
			"use another one, such as .bin"},
		"folder":           {meta, []part{main, {"lib/a.js", typeModule, "x"}}, 400, codeInvalid, "is in a folder"},
		"parent":           {meta, []part{main, {"../a.js", typeModule, "x"}}, 400, codeInvalid, "is in a folder"},
		"name":             {meta, []part{main, {"a b.js", typeModule, "x"}}, 400, codeInvalid, "an invalid name"},
		"dots":             {meta, []part{main, {"..", typeData, "x"}}, 400, codeInvalid, "an invalid name"},
		"reserved":         {meta, []part{main, {"worker.json", typeJSON, "x"}}, 400, codeInvalid, "a reserved name"},
		"main is text":     {`{"main_module": "a.txt"}`, []part{{"a.txt", typeText, "x"}}, 400, codeInvalid, "it must be"},
		"body is a module": {`{"body_part": "index.js"}`, []part{main}, 400, codeInvalid, "has not the type application/javascript"},
		"body and others": {`{"body_part": "a.js"}`, []part{{"a.js", typeJavaScript, "x"}, {"b.wasm", typeWASM,
			"x"}}, 400, codeInvalid, "a service worker has one part"},
		"WASI and others": {`{"main_module": "a.wasm"}`, []part{{"a.wasm", typeWASM, "x"}, {"b.js", typeModule,
			"x"}}, 400, codeInvalid, "a WASI program has one part"},
		"large part": {meta, []part{{"index.js", typeModule, strings.Repeat("x", 1001)}}, 413, codeTooLarge,
			"part index.js is too large"},
		"large total": {meta, []part{main, {"a.txt", typeText, strings.Repeat("x", 900)}, {"b.txt", typeText,
			strings.Repeat("x", 900)}}, 413, codeTooLarge, "part b.txt is too large"},
		"many parts":     {meta, many, 413, codeTooLarge, "more than 64 modules"},
		"unnamed part":   {meta, []part{main, {"", typeText, ""}}, 400, codeInvalid, "has no name"},
		"date":           {`{"main_module": "index.js", "compatibility_date": "today"}`, []part{main}, 400, codeInvalid, "is no date"},
		"late date":      {`{"main_module": "index.js", "compatibility_date": "2026-11-18"}`, []part{main}, 400, codeInvalid, "use at most 2026-11-17"},
		"flags":          {`{"main_module": "index.js", "compatibility_flags": ["nodejs_compat"]}`, []part{main}, 400, codeInvalid, "metadata.compatibility_flags is not supported"},
		"assets":         {`{"main_module": "index.js", "assets": {"jwt": "x"}}`, []part{main}, 400, codeInvalid, "metadata.assets is not supported"},
		"migrations":     {`{"main_module": "index.js", "migrations": {"new_tag": "x"}}`, []part{main}, 400, codeInvalid, "metadata.migrations"},
		"logpush":        {`{"main_module": "index.js", "logpush": true}`, []part{main}, 400, codeInvalid, "metadata.logpush"},
		"KV":             {binding(`{"type": "kv_namespace", "name": "KV", "namespace_id": "x"}`), []part{main}, 400, codeInvalid, `binding "KV" has the type "kv_namespace", which is not supported`},
		"R2":             {binding(`{"type": "r2_bucket", "name": "B", "bucket_name": "x"}`), []part{main}, 400, codeInvalid, "r2_bucket"},
		"Durable Object": {binding(`{"type": "durable_object_namespace", "name": "D", "class_name": "x"}`), []part{main}, 400, codeInvalid, "durable_object_namespace"},
		"JSON":           {binding(`{"type": "json", "name": "J", "json": {}}`), []part{main}, 400, codeInvalid, `"json"`},
		"binding name":   {binding(`{"type": "plain_text", "name": "a-b", "text": ""}`), []part{main}, 400, codeInvalid, "an invalid name"},
		"binding twice":  {binding(`{"type": "plain_text", "name": "A", "text": ""}, {"type": "secret_text", "name": "A", "text": ""}`), []part{main}, 400, codeInvalid, "binding A occurs twice"},
		"binding text": {binding(`{"type": "plain_text", "name": "A", "text": "` + strings.Repeat("x",
			maxBindingText+1) + `"}`), []part{main}, 400, codeBindingTooLarge, "binding A has 5121 bytes"},
		"binding NUL":     {binding(`{"type": "plain_text", "name": "A", "text": "\u0000"}`), []part{main}, 400, codeInvalid, "NUL"},
		"binding version": {binding(`{"type": "inherit", "name": "A", "version_id": "x"}`), []part{main}, 400, codeInvalid, "version_id"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.meta != "" && len(tc.meta) > 900 {
				testLimits := testLimits
				testLimits.total = 1 << 20
				contentType, body := form(tc.meta, tc.parts...)
				_, err := parseUpload(contentType, body, testLimits)
				expectError(t, err, tc.status, tc.code, tc.want)
				return
			}
			_, err := parse(tc.meta, tc.parts...)
			expectError(t, err, tc.status, tc.code, tc.want)
		})
	}
}

func expectError(t *testing.T, err error, status, code int, want string) {
	t.Helper()
	var failure *apiError
	if !errors.As(err, &failure) || failure.status != status || failure.code != code ||
		!strings.Contains(failure.message, want) {
		t.Errorf("got %+v, want %d with code %d and %q", err, status, code, want)
	}
}

func TestParseUploadRefusesBodies(t *testing.T) {
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"no type":     {"", "", "no valid Content-Type"},
		"JSON":        {typeJSON, "{}", "the type application/json: use multipart/form-data"},
		"no boundary": {"multipart/form-data", "x", "has no boundary"},
		"truncated": {"multipart/form-data; boundary=b",
			"--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx", "can't be read"},
		"empty": {"multipart/form-data; boundary=b", "--b--\r\n", "no part \"metadata\""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseUpload(tc.contentType, strings.NewReader(tc.body), testLimits)
			expectError(t, err, http.StatusBadRequest, codeInvalid, tc.want)
		})
	}
	f := start(t, func(o *Options) { o.MaxFileSize, o.MaxUploadSize = 1<<10, 2<<10 })
	f.expect(f.send(acmeToken, http.MethodPut, "/accounts/acme/workers/scripts/hello",
		"multipart/form-data; boundary=b",
		strings.NewReader(strings.Repeat("before the parts\r\n", 200_000))), 413, codeTooLarge,
		"the request has more than")
}

func FuzzParseUpload(f *testing.F) {
	for _, parts := range [][]part{{{"index.js", typeModule, script1}}, {{"index.js", typeModule, script1},
		{"a.wasm", typeWASM, "x"}}, nil} {
		_, body := form(`{"main_module": "index.js", "bindings": [{"type": "plain_text", "name": "A", "text": "x"}]}`, parts...)
		boundary, _, _ := bytes.Cut(body.Bytes(), []byte("\r\n"))
		f.Add(string(boundary[2:]), body.Bytes())
	}
	f.Add("b", []byte("--b\r\nContent-Disposition: form-data; name=metadata\r\n\r\n{\"body_part\":\"a\"}\r\n--b--"))
	f.Fuzz(func(t *testing.T, boundary string, body []byte) {
		u, err := parseUpload("multipart/form-data; boundary=\""+boundary+"\"", bytes.NewReader(body), testLimits)
		if err != nil {
			var failure *apiError
			if !errors.As(err, &failure) || failure.status < 400 || failure.status >= 500 {
				t.Fatalf("got %v, want an error of the client", err)
			}
			return
		}
		names := map[string]bool{}
		for _, m := range u.modules {
			if names[m.name] || strings.ContainsAny(m.name, "/\\") || strings.HasPrefix(m.name, ".") {
				t.Fatalf("got module %q", m.name)
			}
			names[m.name] = true
		}
		if len(u.modules) == 0 || int64(u.size()) > testLimits.total {
			t.Fatalf("got %d modules with %d bytes", len(u.modules), u.size())
		}
	})
}
