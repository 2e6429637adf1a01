package scriptsapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

func TestUploadCreatesWorkerDeployment(t *testing.T) {
	f := start(t)
	r := f.mustUpload("hello", script1)
	for name, want := range map[string]string{"id": "hello", "size": fmt.Sprint(len(script1)), "has_modules": "true",
		"worker_number": "8080", "entry_point": "index.js", "tag": "uidofacme.hello"} {
		if got := r.field(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	got := f.template("hello")
	if got.ScriptName != "hello" || got.WorkerNumber != 8080 || got.CompatibilityDate != "2026-01-01" ||
		got.SecretRef != nil || len(got.ScriptURLs) != 1 {
		t.Errorf("got template %+v", got)
	}
	file, ok := filestore.ParseURL(got.ScriptURLs[0])
	if !ok || file.Name != "index.js" || !strings.HasPrefix(got.ScriptURLs[0], filesURL+"/"+file.SHA256) {
		t.Errorf("got URL %s", got.ScriptURLs[0])
	}
	content, err := f.server.opts.Files.Get(t.Context(), file)
	if err != nil || string(content) != script1 {
		t.Errorf("got %q, %v", content, err)
	}
	if got := f.newWrites(); !slices.Equal(got, []string{"create acme.hello"}) {
		t.Errorf("got writes %v", got)
	}
}

func TestSameUploadWritesNothing(t *testing.T) {
	f := start(t)
	first := f.mustUpload("hello", script1)
	f.newWrites()
	f.clock.SetTime(f.clock.Now().Add(time.Hour))
	second := f.mustUpload("hello", script1)
	if got := f.newWrites(); len(got) > 0 {
		t.Errorf("got writes %v", got)
	}
	if string(first.Result) != string(second.Result) {
		t.Errorf("got %s, then %s", first.Result, second.Result)
	}
	changed := f.mustUpload("hello", script2)
	if got := f.newWrites(); !slices.Equal(got, []string{"update acme.hello"}) {
		t.Errorf("got writes %v", got)
	}
	if changed.field("etag") == first.field("etag") || changed.field("modified_on") == first.field("modified_on") ||
		changed.field("worker_number") != "8080" {
		t.Errorf("got %s after %s", changed.Result, first.Result)
	}
}

// What others set in a WorkerDeployment stays.
func TestUploadKeepsOtherFields(t *testing.T) {
	f := start(t)
	o := newObject("WorkerDeployment", "acme.hello", map[string]any{"releaseHistoryLimit": int64(5),
		"template": map[string]any{"scriptName": "hello", "workerNumber": int64(9000), "secretRef": map[string]any{
			"name": "mine"}, "scriptUrls": []any{"https://example.com/a.mjs"}}})
	o.SetLabels(map[string]string{accountLabel: "acme", "team": "shop"})
	if err := f.client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	f.expect(f.call(http.MethodGet, "/workers/scripts/hello", ""), 404, codeScriptNotFound, "was not uploaded here")
	f.mustUpload("hello", script1)
	have, err := f.server.deployments.get(t.Context(), "acme", "hello")
	if err != nil {
		t.Fatal(err)
	}
	got, spec := have.template(), have.Object["spec"].(map[string]any)
	if got.WorkerNumber != 9000 || got.secretName() != "mine" || have.GetLabels()["team"] != "shop" ||
		spec["releaseHistoryLimit"] != int64(5) {
		t.Errorf("got %v", have.Object)
	}
	f.expect(f.upload("hello", `{"main_module": "a.js", "bindings": [{"type": "plain_text", "name": "A", "text": "1"}]}`,
		part{"a.js", typeModule, script1}), 400, codeInvalid, "refers to Secret mine, which this API does not write")
}

func TestSmallestFreeNumber(t *testing.T) {
	f := start(t)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() { f.mustUpload(name, script1) })
	}
	all.Wait()
	got := map[int64]string{}
	for _, name := range names {
		got[f.template(name).WorkerNumber] = name
	}
	if numbers := slices.Sorted(maps.Keys(got)); len(numbers) != 8 || numbers[0] != 8080 || numbers[7] != 8087 {
		t.Fatalf("got numbers %v", numbers)
	}
	if r := f.call(http.MethodDelete, "/workers/scripts/"+got[8082], ""); r.Status != http.StatusOK {
		t.Fatal(r.Body)
	}
	f.mustUpload("next", script1)
	if n := f.template("next").WorkerNumber; n != 8082 {
		t.Errorf("got number %d, want the free 8082", n)
	}
	// Another account has its own numbers.
	contentType, body := form(`{"main_module": "index.js"}`, part{"index.js", typeModule, script1})
	if r := f.send(otherToken, http.MethodPut, "/accounts/other/workers/scripts/a", contentType, body); r.field(
		"worker_number") != "8080" {
		t.Errorf("got %s", r.Body)
	}
}

func TestTooManyScripts(t *testing.T) {
	f := start(t)
	for i := range maxScripts {
		o := newObject("WorkerDeployment", fmt.Sprintf("acme.s%d", i), map[string]any{"template": map[string]any{
			"scriptName": fmt.Sprintf("s%d", i), "workerNumber": int64(8080 + i)}})
		o.SetLabels(map[string]string{accountLabel: "acme"})
		if err := f.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	f.expect(f.upload("more", `{"main_module": "a.js"}`, part{"a.js", typeModule, script1}), 403, codeTooManyScripts,
		"delete one")
}

// Others that write at the same time cause another attempt, not an error.
func TestConflictsAreRetried(t *testing.T) {
	for name, tc := range map[string]struct{ exists bool }{"create": {false}, "update": {true}} {
		t.Run(name, func(t *testing.T) {
			f := start(t)
			if tc.exists {
				f.mustUpload("hello", script1)
			}
			interfering := &interferingClient{Client: f.client, exists: tc.exists}
			f.server.deployments.client = interfering
			f.mustUpload("hello", script2)
			if interfering.writes < 2 {
				t.Errorf("got %d writes, want a second attempt", interfering.writes)
			}
			o, err := f.server.deployments.get(t.Context(), "acme", "hello")
			if err != nil || o.GetAnnotations()["interfered"] != "true" {
				t.Errorf("got %v, %v: the change of the other writer is lost", o, err)
			}
		})
	}
}

// interferingClient writes the object before the first write of its user.
type interferingClient struct {
	client.Client
	exists bool
	writes int
}

func (c *interferingClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if c.writes++; c.writes == 1 {
		first := o.DeepCopyObject().(client.Object)
		first.SetAnnotations(map[string]string{"interfered": "true"})
		if err := c.Client.Create(ctx, first); err != nil {
			return err
		}
	}
	return c.Client.Create(ctx, o, opts...)
}

func (c *interferingClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if c.writes++; c.writes == 1 && c.exists {
		current := newObject("WorkerDeployment", o.GetName(), nil)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), current); err != nil {
			return err
		}
		current.SetAnnotations(map[string]string{"interfered": "true"})
		if err := c.Client.Update(ctx, current); err != nil {
			return err
		}
	}
	return c.Client.Update(ctx, o, opts...)
}

func TestListGetAndDelete(t *testing.T) {
	f := start(t)
	f.expect(f.call(http.MethodGet, "/workers/scripts/hello", ""), 404, codeScriptNotFound, "has no script hello")
	f.expect(f.call(http.MethodDelete, "/workers/scripts/hello", ""), 404, codeScriptNotFound, "has no script hello")
	f.expect(f.call(http.MethodGet, "/workers/services/hello", ""), 404, codeServiceNotFound, "service_not_found")
	r := f.upload("hello", `{"main_module": "./index.js"}`, part{"./lib.mjs", typeModule, "export const a = 1"},
		part{"index.js", typeModule, script1}, part{"./x.wasm", typeWASM, "\x00asm"})
	if !r.Success {
		t.Fatal(r.Body)
	}
	f.mustUpload("again", script1)
	var names []string
	for _, o := range decode[[]scriptResult](t, f.call(http.MethodGet, "/workers/scripts", "")) {
		names = append(names, o.ID)
	}
	if !slices.Equal(names, []string{"again", "hello"}) {
		t.Errorf("got scripts %v", names)
	}
	got := f.call(http.MethodGet, "/workers/scripts/hello/content/v2", "")
	if got.Header.Get("Cf-Entrypoint") != "index.js" || got.Header.Get("Etag") != `"`+r.field("etag")+`"` {
		t.Errorf("got header %v", got.Header)
	}
	want := []part{{"index.js", typeModule, script1}, {"lib.mjs", typeModule, "export const a = 1"},
		{"x.wasm", typeWASM, "\x00asm"}}
	if parts := parseForm(t, got); !slices.Equal(parts, want) {
		t.Errorf("got %v", parts)
	}
	if r := f.call(http.MethodDelete, "/workers/services/hello?force=true", ""); !r.Success {
		t.Error(r.Body)
	}
	f.expect(f.call(http.MethodGet, "/workers/scripts/hello", ""), 404, codeScriptNotFound, "has no script hello")
}

func TestServiceWorker(t *testing.T) {
	const worker = "addEventListener('fetch', e => e.respondWith(new Response('x')))"
	f := start(t)
	if r := f.upload("form", `{"body_part": "script"}`, part{"script", typeJavaScript, worker}); !r.Success {
		t.Fatal(r.Body)
	}
	if r := f.send(acmeToken, http.MethodPut, "/accounts/acme/workers/scripts/alone", typeJavaScript,
		strings.NewReader(worker)); !r.Success || r.field("has_modules") != "false" {
		t.Fatal(r.Body)
	}
	for _, script := range []string{"form", "alone"} {
		if urls := f.template(script).ScriptURLs; len(urls) != 1 || !strings.HasSuffix(urls[0], "/script.js") {
			t.Errorf("%s: got URLs %v", script, urls)
		}
		r := f.call(http.MethodGet, "/workers/scripts/"+script, "")
		if r.Body != worker || r.Header.Get("Content-Type") != typeJavaScript {
			t.Errorf("%s: got %s of type %s", script, r.Body, r.Header.Get("Content-Type"))
		}
	}
}

func TestObjectsOfOthersAreNotChanged(t *testing.T) {
	f := start(t)
	o := newObject("WorkerDeployment", "acme.hello", map[string]any{})
	o.SetLabels(map[string]string{accountLabel: "other"})
	if err := f.client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	f.expect(f.upload("hello", `{"main_module": "a.js"}`, part{"a.js", typeModule, script1}), 409, codeInvalid,
		"does not have the label accounts: acme")
}

// A script that is being deleted does not exist for readers, and is not changed.
func TestScriptThatIsBeingDeleted(t *testing.T) {
	f := start(t)
	f.mustUpload("hello", script1)
	o, err := f.server.deployments.get(t.Context(), "acme", "hello")
	if err != nil {
		t.Fatal(err)
	}
	o.SetFinalizers([]string{"example.com/wait"})
	if err := f.client.Update(t.Context(), o.Unstructured); err != nil {
		t.Fatal(err)
	}
	if r := f.call(http.MethodDelete, "/workers/scripts/hello", ""); !r.Success {
		t.Fatal(r.Body)
	}
	f.expect(f.call(http.MethodGet, "/workers/services/hello", ""), 404, codeServiceNotFound, "has no script")
	f.expect(f.upload("hello", `{"main_module": "a.js"}`, part{"a.js", typeModule, script2}), 503, codeInternal,
		"is being deleted: try again when it is gone")
	f.mustUpload("next", script1)
	if n := f.template("next").WorkerNumber; n != 8081 {
		t.Errorf("got number %d, want 8081: 8080 is not free yet", n)
	}
}

func TestCorruptFileIsNotReturned(t *testing.T) {
	f := start(t)
	f.mustUpload("hello", script1)
	f.server.opts.Files = corruptStore{f.server.opts.Files}
	f.expect(f.call(http.MethodGet, "/workers/scripts/hello", ""), 500, codeInternal, "is in the log")
}

type corruptStore struct{ filestore.Store }

func (corruptStore) Get(context.Context, filestore.File) ([]byte, error) {
	return nil, fmt.Errorf("the content has another hash")
}

func decode[T any](t *testing.T, r reply) (out T) {
	t.Helper()
	if !r.Success {
		t.Fatal(r.Body)
	}
	if err := json.Unmarshal(r.Result, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func parseForm(t *testing.T, r reply) (out []part) {
	t.Helper()
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(strings.NewReader(r.Body), params["boundary"])
	for {
		p, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, part{p.FormName(), p.Header.Get("Content-Type"), string(content)})
	}
}
