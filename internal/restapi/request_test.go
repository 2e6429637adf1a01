package restapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestInvalidRequestIsRefused(t *testing.T) {
	const object = `{"apiVersion": "example.com/v1", "kind": "Shop"`
	for name, c := range map[string]struct {
		code                       int
		message                    string
		method, path, body, header string
		value                      string
	}{
		"no token":            {401, "no bearer token", "GET", shops, "", "Authorization", ""},
		"basic credentials":   {401, "no bearer token", "GET", shops, "", "Authorization", "Basic YTpi"},
		"a token with spaces": {401, "no bearer token", "GET", shops, "", "Authorization", "Bearer a b"},
		"impersonation":       {400, "Impersonate-User is not supported", "GET", shops, "", "Impersonate-User", "bob"},
		"another method":      {405, "use one of GET, PUT, PATCH, DELETE", "POST", shops, "", "", ""},
		"an unknown path":     {404, "/v1/{plural}.{group}/{namespace}/{name}", "GET", "/v1/shops", "", "", ""},
		"an unserved kind": {404, "ksctlinstalls.apps.ksctl.com, shops.example.com", "GET", "/v1/secrets./team/web", "",
			"", ""},
		"an unaccepted kind":   {404, "does not serve", "GET", "/v1/others.example.com/team/web", "", "", ""},
		"an invalid namespace": {400, "namespace", "GET", "/v1/shops.example.com/te.am/web", "", "", ""},
		"an invalid name":      {400, "name", "GET", "/v1/shops.example.com/team/..%2F..%2Fnodes", "", "", ""},
		"an unknown parameter": {400, "dryRun", "PUT", shops + "?dryRun=All", shopJSON("hi"), "", ""},
		"a repeated parameter": {400, "set it once", "DELETE", shops + "?wait=1s&wait=2s", "", "", ""},
		"wait of a GET":        {400, "unknown parameter", "GET", shops + "?wait=1s", "", "", ""},
		"an invalid wait":      {400, "such as 60s", "DELETE", shops + "?wait=60", "", "", ""},
		"a negative wait":      {400, "such as 60s", "DELETE", shops + "?wait=-1s", "", "", ""},
		"a long wait":          {400, "5m0s", "DELETE", shops + "?wait=1h", "", "", ""},
		"control characters":   {400, "control characters", "DELETE", shops + "?message=a%00", "", "", ""},
		"a long message": {400, "4096 bytes", "DELETE", shops + "?message=" + strings.Repeat("a", 5000), "", "",
			""},
		"an ETag without quotes": {400, "in quotes", "DELETE", shops, "", "If-Match", "abc"},
		"several ETags":          {400, "in quotes", "DELETE", shops, "", "If-Match", `"a", "b"`},
		"If-None-Match":          {400, "only PUT", "PATCH", shops, "{}", "If-None-Match", "*"},
		"YAML":                   {415, "application/json", "PUT", shops, "a: b", "Content-Type", "application/yaml"},
		"a JSON patch": {415, "application/merge-patch+json", "PATCH", shops, "[]", "Content-Type",
			"application/json-patch+json"},
		"no JSON":            {400, "not a JSON object", "PUT", shops, "a: b", "", ""},
		"null":               {400, "not a JSON object", "PUT", shops, "null", "", ""},
		"a list":             {400, "not a JSON object", "PATCH", shops, "[]", "", ""},
		"no apiVersion":      {400, "example.com/v1, example.com/v1beta1", "PUT", shops, "{}", "", ""},
		"another apiVersion": {400, "apiVersion", "PUT", shops, `{"apiVersion": "v1", "kind": "Secret"}`, "", ""},
		"another kind":       {400, "Shop team/web", "PUT", shops, `{"apiVersion": "example.com/v1", "kind": "X"}`, "", ""},
		"another name":       {400, `name "x"`, "PUT", shops, object + `, "metadata": {"name": "x"}}`, "", ""},
		"another namespace":  {400, `namespace "x"`, "PATCH", shops, `{"metadata": {"namespace": "x"}}`, "", ""},
		"a name of null":     {400, "name", "PATCH", shops, `{"metadata": {"name": null}}`, "", ""},
		"metadata as text":   {400, "expected an object", "PUT", shops, object + `, "metadata": "x"}`, "", ""},
		"a large body":       {413, "larger than", "PUT", shops, shopJSON(strings.Repeat("a", maxBodyBytes)), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []*fakeRepository{nil, newRepository(shopDocument("hi"))} {
				e := newEndpoint(t, r, realClock)
				var headers []string
				if c.header != "" {
					headers = []string{c.header, c.value}
				}
				answer := e.expect(c.code, "", c.method, c.path, c.body, headers...)
				if !strings.Contains(strings.ReplaceAll(answer.body, `\"`, `"`), c.message) ||
					!strings.Contains(answer.body, `"kind":"Status"`) {
					t.Errorf("got %s\nwant %q", answer.body, c.message)
				}
				if requests := e.api.recorded(); requests != "" {
					t.Errorf("requests for objects:\n%s", requests)
				}
				if r != nil && len(r.commits) > 0 {
					t.Error("a commit was made")
				}
			}
		})
	}
}

func TestStrangerDoesNotLearnKinds(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	r := e.expect(http.StatusUnauthorized, "fromAPIServer", "GET", "/v1/unknown.example.com/team/web", "",
		"Authorization", "Bearer unknown")
	if strings.Contains(r.body, "shops") {
		t.Errorf("got %s", r.body)
	}
}

// unreadableBody fails the test if it is read.
type unreadableBody struct{ t *testing.T }

func (b unreadableBody) Read([]byte) (int, error) {
	b.t.Error("the body is read")
	return 0, io.EOF
}

func (unreadableBody) Close() error { return nil }

func TestTokenIsCheckedBeforeAnythingElse(t *testing.T) {
	for _, r := range []*fakeRepository{nil, newRepository()} {
		e := newEndpoint(t, r, realClock)
		for _, path := range []string{shops, "/v1/unknown.example.com/team/web", shops + "?unknown=1",
			"/v1/shops.example.com/te.am/web"} {
			for _, authorization := range []string{"", "Bearer unknown"} {
				req := httptest.NewRequest(http.MethodPut, path, unreadableBody{t})
				req.Header.Set("Authorization", authorization)
				w := httptest.NewRecorder()
				e.handler.routes().ServeHTTP(w, req)
				if w.Code != http.StatusUnauthorized {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}
		}
	}
}

func TestDecodingWaitsForOtherBodies(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	for range maxDecoding {
		e.handler.decoding <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var body map[string]any
	if err := e.handler.decode(ctx, []byte("{}"), &body); !errors.Is(err, context.Canceled) || body != nil {
		t.Errorf("%v, %v", body, err)
	}
	<-e.handler.decoding
	for range 2 { // the place is free again
		if err := e.handler.decode(t.Context(), []byte("{}"), &body); err != nil {
			t.Error(err)
		}
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	for range maxConcurrent {
		e.handler.slots <- struct{}{}
	}
	r := e.expect(http.StatusTooManyRequests, "TooManyRequests", "GET", shops, "")
	if r.header.Get("Retry-After") != "1" {
		t.Errorf("headers %v", r.header)
	}
	<-e.handler.slots
	e.expect(http.StatusNotFound, "", "GET", shops, "")
	e.expect(http.StatusNotFound, "", "GET", shops, "") // the slot is free again
}

func TestPanicIsAnsweredAndFreesSlot(t *testing.T) {
	e := newEndpoint(t, newRepository(shopDocument("hi")), realClock)
	e.repository.lost = func() { panic("a bug") }
	r := e.expect(http.StatusInternalServerError, "the log of the controller has the reason", "PUT", shops,
		shopJSON("hello"))
	if strings.Contains(r.body, "a bug") || !strings.Contains(e.output.String(), "panic: a bug") {
		t.Errorf("answer %s, log:\n%s", r.body, e.output)
	}
	if len(e.handler.slots) > 0 {
		t.Error("the slot is not free")
	}
	e.repository.lost = nil
	e.expect(http.StatusOK, "hello", "PUT", shops, shopJSON("hello"))
}

func TestOlderVersionIsAccepted(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	e.send("PUT", shops, strings.Replace(shopJSON("hi"), "/v1", "/v1beta1", 1))
	if requests := e.api.recorded(); !strings.Contains(requests, "POST /apis/example.com/v1beta1/") {
		t.Errorf("requests:\n%s", requests)
	}
}

func TestAuthor(t *testing.T) {
	for user, want := range map[string]string{
		"system:serviceaccount:shop:ci": "ServiceAccount shop/ci <ci@shop.serviceaccounts.cluster.local>",
		"alice@example.com":             "alice@example.com <alice@example.com>",
		"system:admin":                  "system:admin <system-admin@users.cluster.local>",
		"Alice <a@b>":                   "Alice <a@b> <Alice-a-b@users.cluster.local>",
	} {
		if name, email := author(user); name+" <"+email+">" != want {
			t.Errorf("%s: %s <%s>", user, name, email)
		}
	}
}

func TestOpenAPIDescribesServedKinds(t *testing.T) {
	e := newEndpoint(t, nil, realClock)
	r := e.expect(http.StatusOK, "/v1/shops.example.com/{namespace}/{name}", "GET", "/openapi/v3", "")
	for _, want := range []string{"/v1/ksctlinstalls.apps.ksctl.com/{namespace}/{name}", `"example.Shop"`,
		"#/components/schemas/example.Shop", "#/components/schemas/ksctl.Install", `"replaceShop"`} {
		if !strings.Contains(r.body, want) {
			t.Errorf("no %s in %s", want, r.body)
		}
	}
	e.expect(http.StatusUnauthorized, "no bearer token", "GET", "/openapi/v3", "", "Authorization", "")
	e.expect(http.StatusMethodNotAllowed, "use GET", "PUT", "/openapi/v3", "")
}
