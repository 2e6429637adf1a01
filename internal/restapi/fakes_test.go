package restapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr/funcr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/internal/restapi/repository"
)

const (
	// token is that of a user who may do everything, strangersToken that of one who may do nothing.
	token          = "token-of-alice"
	strangersToken = "token-of-mallory"
	shops          = "/v1/shops.example.com/team/web"
	livePath       = "/apis/example.com/v1/namespaces/team/shops/web"
)

// fakeAPIServer has the objects of one kind. It refuses a spec without a greeting.
type fakeAPIServer struct {
	mu       sync.Mutex
	objects  map[string]map[string]any
	version  int
	requests []string
	// before is called before a request for an object, without the lock.
	before func(r *http.Request)
}

func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"message": message, "code": code, "fromAPIServer": true})
}

func (f *fakeAPIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user := map[string]string{"Bearer " + token: "alice", "Bearer " + strangersToken: "mallory"}[r.Header.Get(
		"Authorization")]
	body, _ := io.ReadAll(r.Body)
	var content map[string]any
	_ = json.Unmarshal(body, &content)
	switch {
	case user == "":
		refuse(w, http.StatusUnauthorized, "Unauthorized")
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		content["status"] = map[string]any{"userInfo": map[string]any{"username": user}}
		_ = json.NewEncoder(w).Encode(content)
	case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
		content["status"] = map[string]any{"allowed": user == "alice"}
		_ = json.NewEncoder(w).Encode(content)
	case strings.HasPrefix(r.URL.Path, "/openapi/"):
		_, _ = fmt.Fprint(w, `{"components": {"schemas": {"example.Shop": {"x-kubernetes-group-version-kind": `+
			`[{"group": "example.com", "version": "v1", "kind": "Shop"}]}, "ksctl.Install": `+
			`{"x-kubernetes-group-version-kind": [{"group": "apps.ksctl.com", "version": "v1", "kind": "KsctlInstall"}]}}}}`)
	case user != "alice":
		refuse(w, http.StatusForbidden, "mallory may not")
	default:
		if f.before != nil {
			f.before(r)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI())
		f.serveObject(w, r, body, content)
	}
}

// serveObject handles a request for an object.
func (f *fakeAPIServer) serveObject(w http.ResponseWriter, r *http.Request, body []byte, content map[string]any) {
	path, code := r.URL.Path, http.StatusOK
	if r.Method == http.MethodPost {
		path, code = path+"/"+(&unstructured.Unstructured{Object: content}).GetName(), http.StatusCreated
	}
	have := f.objects[path]
	present := &unstructured.Unstructured{Object: have}
	switch {
	case have == nil && r.Method != http.MethodPost:
		refuse(w, http.StatusNotFound, "not found")
		return
	case have != nil && r.Method == http.MethodPost:
		refuse(w, http.StatusConflict, "already exists")
		return
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(have)
		return
	case r.Method == http.MethodPatch:
		before, _ := json.Marshal(have)
		merged, _ := jsonpatch.MergePatch(before, body)
		content = nil
		_ = json.Unmarshal(merged, &content)
	}
	changed := &unstructured.Unstructured{Object: content}
	expected, _, _ := unstructured.NestedString(content, "preconditions", "resourceVersion")
	if r.Method != http.MethodDelete {
		expected = changed.GetResourceVersion()
	}
	if have != nil && expected != "" && expected != present.GetResourceVersion() {
		refuse(w, http.StatusConflict, "the object has been modified")
		return
	}
	dryRun := r.URL.Query().Get("dryRun") != ""
	if r.Method == http.MethodDelete {
		if !dryRun {
			delete(f.objects, path)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
		return
	}
	if greeting, _, _ := unstructured.NestedString(content, "spec", "greeting"); greeting == "" {
		refuse(w, http.StatusUnprocessableEntity, "spec.greeting: Required value")
		return
	}
	_ = unstructured.SetNestedField(content, "default", "spec", "port")
	changed.SetUID("1")
	f.version++
	changed.SetResourceVersion(fmt.Sprint(f.version))
	changed.SetGeneration(present.GetGeneration() + 1)
	if !dryRun {
		f.objects[path] = content
	}
	w.Header().Set("Warning", `299 - "a warning"`)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content)
}

// set stores an object as its controller or another client does.
func (f *fakeAPIServer) set(edit func(u *unstructured.Unstructured)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := (&unstructured.Unstructured{Object: f.objects[livePath]}).DeepCopy()
	edit(u)
	f.version++
	u.SetResourceVersion(fmt.Sprint(f.version))
	f.objects[livePath] = u.Object
}

// setReady sets the condition Ready of the current generation.
func (f *fakeAPIServer) setReady(status, message string) {
	f.set(func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedSlice(u.Object, []any{map[string]any{"type": "Ready", "status": status,
			"reason": "Reason", "message": message, "observedGeneration": u.GetGeneration()}}, "status", "conditions")
	})
}

// recorded returns the requests for objects since the last call.
func (f *fakeAPIServer) recorded() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := strings.Join(f.requests, "\n")
	f.requests = nil
	return out
}

// fakeRepository has documents in memory.
type fakeRepository struct {
	documents map[manifests.Key]*manifests.Document
	commits   []repository.Change
	// err is the error of the next Apply, after Edit. lost is called once between two attempts of
	// an Apply.
	err  error
	lost func()
}

func newDocument(file string, object map[string]any) *manifests.Document {
	content, _ := json.Marshal(object)
	return &manifests.Document{File: file, Hash: fmt.Sprintf("%x", len(content)) + strings.Join(strings.Fields(
		fmt.Sprint(object["spec"])), ""), Object: &unstructured.Unstructured{Object: object}}
}

func (f *fakeRepository) Get(_ context.Context, key manifests.Key) (*manifests.Document, error) {
	if d := f.documents[key]; d != nil {
		return d, nil
	}
	return nil, &manifests.ConflictError{Key: key, Reason: "no file has it", NotFound: true}
}

func (f *fakeRepository) Apply(ctx context.Context, c repository.Change) (repository.Result, error) {
	desired, err := c.Edit(ctx, f.documents[c.Key])
	if err != nil {
		return repository.Result{}, err
	}
	if f.lost != nil {
		f.lost()
		f.lost = nil
		if desired, err = c.Edit(ctx, f.documents[c.Key]); err != nil {
			return repository.Result{}, err
		}
	}
	if f.err != nil {
		return repository.Result{}, f.err
	}
	f.commits = append(f.commits, c)
	result := repository.Result{Commit: fmt.Sprint("commit-", len(f.commits)), Changed: true}
	if desired == nil {
		delete(f.documents, c.Key)
		return result, nil
	}
	result.Document = newDocument("shop.yaml", desired.Object)
	f.documents[c.Key] = result.Document
	return result, nil
}

// endpoint is an endpoint with fakes.
type endpoint struct {
	t          *testing.T
	api        *fakeAPIServer
	repository *fakeRepository
	url        string
	handler    *handler
	// output has the logs and all answers.
	output *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) add(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.WriteString(text + "\n")
}

// newEndpoint serves a handler. No token may be in its logs and answers.
func newEndpoint(t *testing.T, r *fakeRepository, c clock.Clock) *endpoint {
	t.Helper()
	e := &endpoint{t: t, api: &fakeAPIServer{objects: map[string]map[string]any{}}, repository: r,
		output: &lockedBuffer{}}
	api := httptest.NewServer(e.api)
	t.Cleanup(api.Close)
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kind := &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: "shop"},
		Status: appsv1.KsctlKindStatus{CRD: "shops.example.com", ServedVersions: []string{"v1", "v1beta1"}}}
	unaccepted := &appsv1.KsctlKind{ObjectMeta: metav1.ObjectMeta{Name: "other"},
		Status: appsv1.KsctlKindStatus{CRD: "others.example.com"}}
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shop"}, apimeta.RESTScopeNamespace)
	o := Options{Config: &rest.Config{Host: api.URL, BearerToken: "token-of-the-controller", Username: "controller"},
		Kinds:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(kind, unaccepted).Build(),
		Mapper: mapper, Clock: c,
		Log: funcr.New(func(_, args string) { e.output.add(args) }, funcr.Options{Verbosity: 9})}
	if r != nil {
		o.Repository = r
	}
	var err error
	if e.handler, err = newHandler(&o); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e.handler.routes())
	t.Cleanup(func() {
		server.Close()
		for _, secret := range []string{token, strangersToken, "token-of-the-controller"} {
			if strings.Contains(e.output.String(), secret) {
				t.Errorf("a log or an answer contains a token:\n%s", e.output)
			}
		}
	})
	e.url = server.URL
	return e
}

// response is an answer of the endpoint.
type response struct {
	code   int
	header http.Header
	body   string
}

// send sends a request as alice, unless headers have another Authorization. headers are pairs.
func (e *endpoint) send(method, path, body string, headers ...string) response {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.Context(), method, e.url+path, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	switch method {
	case http.MethodPut:
		req.Header.Set("Content-Type", jsonType)
	case http.MethodPatch:
		req.Header.Set("Content-Type", mergePatchType)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	e.output.add(fmt.Sprint(resp.Header, string(content)))
	return response{resp.StatusCode, resp.Header, string(content)}
}

// expect sends a request and checks the code and a part of the answer.
func (e *endpoint) expect(code int, contains, method, path, body string, headers ...string) response {
	e.t.Helper()
	r := e.send(method, path, body, headers...)
	if r.code != code || !strings.Contains(r.body, contains) {
		e.t.Fatalf("%s %s: %d %s\nwant %d and %q", method, path, r.code, r.body, code, contains)
	}
	return r
}

// shopJSON returns an object.
func shopJSON(greeting string) string {
	return fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": "Shop", "spec": {"greeting": %q}}`, greeting)
}

var shopKey = manifests.Key{Group: "example.com", Kind: "Shop", Namespace: "team", Name: "web"}

// shopDocument returns the document of an object.
func shopDocument(greeting string) *manifests.Document {
	return newDocument("shop.yaml", map[string]any{"apiVersion": "example.com/v1", "kind": "Shop",
		"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"greeting": greeting}})
}

func newRepository(documents ...*manifests.Document) *fakeRepository {
	r := &fakeRepository{documents: map[manifests.Key]*manifests.Document{}}
	for _, d := range documents {
		r.documents[shopKey] = d
	}
	return r
}

var realClock = clock.RealClock{}

// patience bounds waits of tests.
const patience = time.Minute
