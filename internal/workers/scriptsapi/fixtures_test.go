package scriptsapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

const (
	namespace  = "team"
	acmeToken  = "acme-token-0123456789"
	otherToken = "other-token-0123456789"
	filesURL   = "http://worker-api.team.svc:8788/files"
	script1    = "export default { fetch() { return new Response('1') } }"
	script2    = "export default { fetch() { return new Response('2') } }"
)

// fixture is a running API with the accounts acme and other.
type fixture struct {
	*testing.T
	client client.Client
	server *Server
	http   *httptest.Server
	clock  *clocktesting.FakePassiveClock
	tokens string

	mu     sync.Mutex
	writes []string
	logs   strings.Builder
}

// start starts the API.
func start(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{T: t, clock: clocktesting.NewFakePassiveClock(time.Now()), tokens: t.TempDir()}
	f.write("acme", acmeToken+"\n\n")
	f.write("other", otherToken)
	f.client = interceptor.NewClient(newClient(t), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			f.record("create", o)
			o.SetUID(types.UID("uid-of-" + o.GetName()))
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			f.record("update", o)
			return c.Update(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch,
			opts ...client.PatchOption) error {
			f.record("patch", o)
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			f.record("delete", o)
			return c.Delete(ctx, o, opts...)
		}})
	dir := t.TempDir()
	volume, err := filestore.NewVolume(filepath.Join(dir, "files"), filesURL, 0)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Client: f.client, Namespace: namespace, Files: volume, VersionsFolder: filepath.Join(dir, "versions"),
		TokensFolder: f.tokens, Clock: f.clock, Log: f.logger()}
	for _, c := range change {
		c(&o)
	}
	if f.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	f.http = httptest.NewServer(f.server)
	t.Cleanup(f.http.Close)
	return f
}

func newClient(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := clientgoscheme.Scheme
	for _, name := range []string{"WorkerAccount", "WorkerDeployment", "WorkerRelease"} {
		if !scheme.Recognizes(kind(name)) {
			scheme.AddKnownTypeWithName(kind(name), &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(kind(name+"List"), &unstructured.UnstructuredList{})
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	for _, account := range []string{"acme", "other"} {
		if err := c.Create(t.Context(), newObject("WorkerAccount", account, nil)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func newObject(kindName, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind(kindName))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// logger returns a logger whose lines are in logs.
func (f *fixture) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.logs.WriteString(args + "\n")
	}, funcr.Options{})
}

func (f *fixture) record(verb string, o client.Object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes = append(f.writes, verb+" "+o.GetName())
}

// newWrites returns the writes since the last call.
func (f *fixture) newWrites() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.writes
	f.writes = nil
	return out
}

func (f *fixture) write(account, content string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.tokens, account), []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
}

// reply is an answer of the API.
type reply struct {
	Status   int
	Header   http.Header
	Body     string
	Success  bool            `json:"success"`
	Errors   []note          `json:"errors"`
	Messages []note          `json:"messages"`
	Result   json.RawMessage `json:"result"`
}

// code returns the code of the error; 0 without one.
func (r reply) code() int {
	if len(r.Errors) == 0 {
		return 0
	}
	return r.Errors[0].Code
}

// field returns a field of the result as text.
func (r reply) field(name string) string {
	var fields map[string]any
	_ = json.Unmarshal(r.Result, &fields)
	return fmt.Sprint(fields[name])
}

func (f *fixture) send(token, method, path, contentType string, body io.Reader) reply {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.http.URL+"/client/v4"+path, body)
	if err != nil {
		f.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := f.http.Client().Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		f.Fatal(err)
	}
	out := reply{Status: response.StatusCode, Header: response.Header, Body: string(content)}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(content, &out); err != nil {
			f.Fatalf("%s %s: %v: %s", method, path, err, content)
		}
	}
	return out
}

// call sends a request of the account acme.
func (f *fixture) call(method, path, body string) reply {
	f.Helper()
	return f.send(acmeToken, method, "/accounts/acme"+path, typeJSON, strings.NewReader(body))
}

// part is a part of a form.
type part struct{ name, contentType, content string }

func form(meta string, parts ...part) (contentType string, body *bytes.Buffer) {
	body = &bytes.Buffer{}
	w := multipart.NewWriter(body)
	if meta != "" {
		parts = append([]part{{"metadata", "", meta}}, parts...)
	}
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name=%q`, p.name)}}
		if p.contentType != "" {
			h.Set("Content-Type", p.contentType)
		}
		pw, err := w.CreatePart(h)
		if err == nil {
			_, err = pw.Write([]byte(p.content))
		}
		if err != nil {
			panic(err) // a buffer has no errors
		}
	}
	_ = w.Close()
	return w.FormDataContentType(), body
}

// upload uploads a form as a script of the account acme.
func (f *fixture) upload(script, meta string, parts ...part) reply {
	f.Helper()
	contentType, body := form(meta, parts...)
	return f.send(acmeToken, http.MethodPut, "/accounts/acme/workers/scripts/"+script, contentType, body)
}

// mustUpload uploads an ES module.
func (f *fixture) mustUpload(script, content string) reply {
	f.Helper()
	r := f.upload(script, `{"main_module": "index.js", "compatibility_date": "2026-01-01"}`,
		part{"index.js", typeModule, content})
	if r.Status != http.StatusOK || !r.Success {
		f.Fatalf("uploading %s: %s", script, r.Body)
	}
	return r
}

// template returns the template of a script of the account acme.
func (f *fixture) template(script string) template {
	f.Helper()
	o, err := f.server.deployments.get(f.Context(), "acme", script)
	if err != nil || o == nil {
		f.Fatalf("WorkerDeployment of %s: %v, %v", script, o, err)
	}
	return o.template()
}

func (f *fixture) expect(r reply, status, code int, message string) {
	f.Helper()
	if r.Status != status || r.code() != code || r.Success || !strings.Contains(r.Errors[0].Message, message) {
		f.Errorf("got %d %s, want %d with code %d and %q", r.Status, r.Body, status, code, message)
	}
}
