package scriptsapi

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

// postVersion uploads a version of script hello, and returns its id.
func (f *fixture) postVersion(fields, content string) reply {
	f.Helper()
	contentType, body := form(`{"main_module": "index.js"`+fields+`}`, part{"index.js", typeModule, content})
	return f.send(acmeToken, http.MethodPost, "/accounts/acme/workers/scripts/hello/versions", contentType, body)
}

func (f *fixture) deploy(id, percentage string) reply {
	f.Helper()
	return f.call(http.MethodPost, "/workers/scripts/hello/deployments",
		`{"strategy": "percentage", "versions": [{"version_id": "`+id+`", "percentage": `+percentage+`}]}`)
}

func TestVersionIsDeployedOnRequest(t *testing.T) {
	f := start(t)
	f.expect(f.postVersion("", script1), 404, codeScriptNotFound, "has no script hello")
	f.mustUpload("hello", script1)
	before := f.template("hello").etag()
	r := f.postVersion(`, "bindings": [{"type": "plain_text", "name": "A", "text": "1"}]`, script2)
	id := r.field("id")
	if !r.Success || len(id) != 36 || f.template("hello").etag() != before {
		t.Fatal(r.Body)
	}
	if again := f.postVersion(`, "bindings": [{"type": "plain_text", "name": "A", "text": "1"}]`, script2); again.field(
		"id") != id {
		t.Errorf("got %s for the same version", again.Body)
	}
	f.expect(f.deploy(id, "50"), 400, codeInvalid, "gradual deployments are not supported")
	f.expect(f.deploy("00000000-0000-0000-0000-000000000000", "100"), 404, codeScriptNotFound,
		"or it expired: upload it")
	f.expect(f.deploy("../../x", "100"), 400, codeInvalid, "is no UUID")
	if r := f.deploy(id, "100"); !r.Success || f.template("hello").etag() == before {
		t.Fatal(r.Body)
	}
	f.expectKeys("plain A=1")
	f.newWrites()
	if r := f.deploy(id, "100"); !r.Success || len(f.newWrites()) > 0 {
		t.Errorf("deployed again: got %s", r.Body)
	}
	f.expect(f.postVersion(`, "bindings": [{"type": "secret_text", "name": "S", "text": "1"}]`, script2), 400, codeInvalid,
		"wrangler secret put")
}

func TestOldestVersionsMakeRoom(t *testing.T) {
	f := start(t)
	f.mustUpload("hello", script1)
	var ids []string
	for i := range maxVersions + 2 {
		ids = append(ids, f.postVersion("", fmt.Sprintf("export default %d", i)).field("id"))
		// The time of a file has the resolution of the file system.
		at := time.Now().Add(time.Duration(i-100) * time.Minute)
		id := strings.ReplaceAll(ids[i], "-", "")
		if err := os.Chtimes(f.server.versions.file("acme", "hello", id), at, at); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range ids {
		want := http.StatusOK
		if i < 2 {
			want = http.StatusNotFound
		}
		if got := f.deploy(id, "100"); got.Status != want {
			t.Errorf("version %d: got %s, want status %d", i, got.Body, want)
		}
	}
}

func (f *fixture) files() map[string]bool {
	f.Helper()
	out := map[string]bool{}
	for i, err := range f.server.opts.Files.All(f.Context()) {
		if err != nil {
			f.Fatal(err)
		}
		i.Name = "index.js"
		content, err := f.server.opts.Files.Get(f.Context(), i.File)
		if err != nil {
			f.Fatal(err)
		}
		out[string(content)] = true
	}
	return out
}

func TestCollectDeletesUnusedFiles(t *testing.T) {
	f := start(t)
	const script3, script4 = "export default 3", "export default 4"
	for _, content := range []string{script1, script2, script3} {
		f.mustUpload("hello", content)
	}
	f.postVersion("", script4)
	collect := func(wait time.Duration, want int, left ...string) {
		t.Helper()
		f.clock.SetTime(time.Now().Add(wait))
		got, err := f.server.Collect(t.Context())
		if err != nil || got != want {
			t.Errorf("deleted %d, %v, want %d", got, err, want)
		}
		files := f.files()
		for _, content := range left {
			if !files[content] {
				t.Errorf("%q was deleted", content)
			}
		}
		if len(files) != len(left) {
			t.Errorf("got %v, want %v", files, left)
		}
	}
	// script1 is that of a retained release.
	f.retain(script1)
	collect(DefaultKeep-time.Minute, 0, script1, script2, script3, script4)
	collect(DefaultKeep+time.Minute, 2, script1, script3)
	f.call(http.MethodDelete, "/workers/scripts/hello", "")
	collect(DefaultKeep+time.Minute, 1, script1)
}

// retain makes a WorkerRelease with a script, under another base URL.
func (f *fixture) retain(content string) {
	f.Helper()
	file, err := f.server.opts.Files.Put(f.Context(), "index.js", []byte(content))
	if err != nil {
		f.Fatal(err)
	}
	if err := f.client.Create(f.Context(), newObject("WorkerRelease", "acme.hello-1",
		map[string]any{"scriptUrls": []any{
			"https://example.com/other.js", strings.Replace(f.server.opts.Files.URL(file), "team", "former",
				1)}})); err != nil {
		f.Fatal(err)
	}
}

// An upload of a file during a collection keeps it.
func TestUploadDuringCollection(t *testing.T) {
	f := start(t)
	f.mustUpload("hello", script1)
	f.mustUpload("hello", script2)
	f.clock.SetTime(time.Now().Add(2 * DefaultKeep))
	f.server.opts.Files = &uploadingStore{Store: f.server.opts.Files, upload: func() { f.mustUpload("hello", script1) }}
	if n, err := f.server.Collect(t.Context()); err != nil || n != 1 {
		t.Errorf("deleted %d, %v", n, err)
	}
	if files := f.files(); !files[script1] || files[script2] {
		t.Errorf("got %v", files)
	}
}

// uploadingStore calls upload after it listed the files.
type uploadingStore struct {
	filestore.Store
	upload func()
}

func (s *uploadingStore) All(ctx context.Context) iter.Seq2[filestore.Info, error] {
	return func(yield func(filestore.Info, error) bool) {
		s.Store.All(ctx)(yield)
		if upload := s.upload; upload != nil {
			s.upload = nil
			upload()
		}
	}
}
