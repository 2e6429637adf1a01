package commitstatus

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

const token = "a-token-that-nobody-is-told"

// fakeAPI is a server that accepts statuses as one of the three server types does.
type fakeAPI struct {
	kind appsv1.CommitStatusType
	// got are the statuses by context, asked all requests.
	got   map[string]string
	asked []string
}

// ServeHTTP behaves as the documentation that target.go links to.
func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := map[appsv1.CommitStatusType]string{
		"github": "/api/v3/repos/team/fleet/statuses/", "gitlab": "/api/v4/projects/team%2Ffleet/statuses/",
		"gitea": "/api/v1/repos/team/fleet/statuses/"}[a.kind]
	login := map[appsv1.CommitStatusType]string{"github": "Bearer ", "gitlab": "Bearer ", "gitea": "token "}[a.kind] +
		token
	a.asked = append(a.asked, r.Method+" "+r.URL.EscapedPath())
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, body string) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
	commit, ok := strings.CutPrefix(r.URL.EscapedPath(), path)
	var body map[string]string
	switch {
	case r.Header.Get("Authorization") != login:
		answer(401, `{"message":"Bad credentials","documentation_url":"https://docs.github.com/rest","status":"401"}`)
		return
	case !ok || r.Method != http.MethodPost:
		answer(404, `{"message":"Not Found"}`)
		return
	case r.Header.Get("Content-Type") != "application/json" || json.NewDecoder(r.Body).Decode(&body) != nil:
		answer(400, `{"error":"state is missing"}`)
		return
	case a.kind == "github" &&
		(r.Header.Get("Accept") != "application/vnd.github+json" || r.Header.Get("X-GitHub-Api-Version") == "" ||
			r.UserAgent() == ""):
		answer(415, ``)
		return
	case commit != one:
		answer(422, `{"message":"No commit found for SHA: `+commit+`"}`)
		return
	}
	states, name := "error failure pending success", "context"
	if a.kind == "gitlab" {
		states, name = "pending running success failed canceled skipped", "name"
	}
	if !strings.Contains(states, body["state"]) || body[name] == "" || len(body) != 3 || a.kind == "github" &&
		utf8.RuneCountInString(body["description"]) > 140 {
		answer(422, fmt.Sprintf(`{"message":"Validation Failed","errors":[%q]}`, fmt.Sprint(body)))
		return
	}
	if a.kind == "gitlab" && body["state"] == "pending" && strings.HasPrefix(a.got[body[name]], "pending ") {
		answer(400, `{"message":"Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via \"enqueue\")"}`)
		return
	}
	a.got[body[name]] = body["state"] + " " + body["description"]
	answer(201, `{"id":1}`)
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func newTestTarget(t *testing.T, kind appsv1.CommitStatusType, server string) Target {
	t.Helper()
	to, err := newTarget(kind, server+"/team/fleet.git")
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func access() Access {
	return Access{HTTP: artifact.NewHTTPClient(), Token: token, TokenSource: "the Secret team/status"}
}

// result returns the result of an error of Post, and checks that it does not contain the token.
func result(t *testing.T, err error) (Result, *Error) {
	t.Helper()
	if err == nil {
		return Written, nil
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("not an *Error: %T %v", err, err)
	}
	if strings.Contains(err.Error(), token) {
		t.Errorf("the error contains the token: %v", err)
	}
	return e.Result, e
}

func TestPostToEachServerType(t *testing.T) {
	for kind, want := range map[appsv1.CommitStatusType]map[State]string{
		"github": {Pending: "pending", Success: "success", Failure: "failure", Canceled: "error"},
		"gitlab": {Pending: "pending", Success: "success", Failure: "failed", Canceled: "canceled"},
		"gitea":  {Pending: "pending", Success: "success", Failure: "failure", Canceled: "error"},
	} {
		a := &fakeAPI{kind: kind, got: map[string]string{}}
		to := newTestTarget(t, kind, serve(t, a).URL)
		wanted := map[string]string{}
		for state, prefix := range want {
			s := Status{one, "ksctlinstall/team/web/" + string(state), state, strings.Repeat("ü", 140)}
			wanted[s.Context] = prefix + " " + s.Description
			for range 2 { // GitLab rejects a transition from pending to pending
				if err := to.Post(t.Context(), access(), s, noon); err != nil {
					t.Errorf("%s %s: %v", kind, state, err)
				}
			}
		}
		if !maps.Equal(a.got, wanted) || len(a.asked) != 8 {
			t.Errorf("%s: got %v in %d requests", kind, a.got, len(a.asked))
		}
		bad := access()
		bad.Token = "another"
		r, e := result(t, to.Post(t.Context(), bad, Status{one, "c", Success, ""}, noon))
		if r != Refused || !strings.Contains(e.Message, "the Secret team/status") ||
			!strings.Contains(e.Message, "Bad credentials") || !strings.Contains(e.Message, to.RequiredPermissions()) {
			t.Errorf("%s, another token: %s %v", kind, r, e)
		}
		if r, e := result(t, to.Post(t.Context(), access(), Status{two, "c", Success, ""}, noon)); r != Invalid ||
			!strings.Contains(e.Message, "No commit found") {
			t.Errorf("%s, another commit: %s %v", kind, r, e)
		}
	}
}

func TestPostResults(t *testing.T) {
	soon := strconv.FormatInt(noon.Add(5*time.Minute).Unix(), 10)
	for _, c := range []struct {
		name   string
		code   int
		header map[string]string
		body   string
		want   Result
		after  time.Duration
		says   string
	}{
		{name: "created", code: 201, want: Written},
		{name: "web page", code: 200, body: "<html>", want: Refused, says: "not the API"},
		{name: "repository not found", code: 404, body: `{"message":"404 Project Not Found"}`, want: Refused,
			says: `"404 Project Not Found"`},
		{name: "no permission", code: 403, body: `{"message":"Resource not accessible by personal access token"}`,
			want: Refused, says: "not accessible"},
		{name: "no scope", code: 403,
			body: `{"error":"insufficient_scope","error_description":"The request requires higher privileges"}`,
			want: Refused, says: "higher privileges"},
		{name: "message is an object", code: 400, body: `{"message":{"name":["is too long"]}}`, want: Invalid,
			says: "is too long"},
		{name: "rate limit, seconds", code: 429, header: map[string]string{"Retry-After": "90"}, want: Limited,
			after: 90 * time.Second},
		{name: "rate limit, date", code: 429,
			header: map[string]string{"Retry-After": noon.Add(time.Minute).Format(http.TimeFormat)}, want: Limited,
			after: time.Minute},
		{name: "rate limit, no header", code: 429, want: Limited},
		{name: "primary rate limit of GitHub", code: 403,
			header: map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": soon}, want: Limited,
			after: 5 * time.Minute},
		{name: "secondary rate limit of GitHub", code: 403,
			header: map[string]string{"Retry-After": "60", "X-RateLimit-Remaining": "4000"}, want: Limited,
			after: time.Minute},
		{name: "no permission, rate limit not exceeded", code: 403,
			header: map[string]string{"X-RateLimit-Remaining": "4000", "X-RateLimit-Reset": soon}, want: Refused},
		{name: "rate limit, too long", code: 429, header: map[string]string{"Retry-After": "4000000000"}, want: Limited,
			after: maxRetryAfter},
		{name: "rate limit, zero seconds", code: 429, header: map[string]string{"Retry-After": "0"}, want: Limited,
			after: time.Second},
		{name: "rate limit, invalid header", code: 429, header: map[string]string{"Retry-After": "soon"}, want: Limited,
			after: time.Second},
		{name: "maintenance", code: 503, header: map[string]string{"Retry-After": "120"}, body: "<html>", want: Failed,
			after: 2 * time.Minute},
		{name: "internal error", code: 500, want: Failed},
		{name: "conflict", code: 409, want: Failed},
		{name: "message contains the token", code: 401, body: `{"message":"no ` + token + `"}`, want: Refused,
			says: "no ***"},
		{name: "long message", code: 401, body: `{"message":"` + strings.Repeat("x", 5000) + `"}`, want: Refused},
		{name: "message beyond the read limit", code: 401, body: `{"message":"` + strings.Repeat("x", 1<<20) + `"}`,
			want: Refused},
		{name: "redirect to another server", code: 307,
			header: map[string]string{"Location": "https://elsewhere.example.com/"}, want: Refused,
			says: "spec.commitStatus.address"},
		{name: "redirect without a location", code: 307, want: Refused},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			r, e := result(t, newTestTarget(t, "github", s.URL).
				Post(t.Context(), access(), Status{one, "c", Success, ""}, noon))
			if r != c.want || e != nil &&
				(e.RetryAfter != c.after || !strings.Contains(e.Message, c.says) || len(e.Message) > 1000) {
				t.Errorf("got %s %+v", r, e)
			}
		})
	}
}

func TestTokenIsNotSentToRedirectTargets(t *testing.T) {
	var elsewhere []string
	other := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Method)
	}))
	for _, code := range []int{301, 302, 303, 307, 308} {
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, code)
		}))
		if r, e := result(t, newTestTarget(t, "gitea", s.URL).
			Post(t.Context(), access(), Status{Commit: one, State: Success}, noon)); r != Refused {
			t.Errorf("%d: %s %v", code, r, e)
		}
	}
	if len(elsewhere) > 0 {
		t.Errorf("another server got requests: %v", elsewhere)
	}
}

func TestPostFollowsRedirectsOnTheSameServer(t *testing.T) {
	a := &fakeAPI{kind: "gitea", got: map[string]string{}}
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/old/") {
			http.Redirect(w, r, strings.Replace(r.URL.Path, "/old/", "/team/", 1), http.StatusTemporaryRedirect)
			return
		}
		a.ServeHTTP(w, r)
	}))
	to, err := newTarget("gitea", s.URL+"/old/fleet")
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Post(t.Context(), access(), Status{one, "c", Success, "d"}, noon); err != nil ||
		a.got["c"] != "success d" {
		t.Errorf("%v, got %v", err, a.got)
	}
	loop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	}))
	if r, e := result(t, newTestTarget(t, "gitea", loop.URL).Post(t.Context(), access(), Status{Commit: one},
		noon)); r != Refused {
		t.Errorf("redirect loop: %s %v", r, e)
	}
}

func TestPostToUnreachableServers(t *testing.T) {
	if r, e := result(t, newTestTarget(t, "github", "http://127.0.0.1:1").
		Post(t.Context(), access(), Status{Commit: one}, noon)); r != Failed {
		t.Errorf("connection refused: %s %v", r, e)
	}
	if r, e := result(t, newTestTarget(t, "github", "http://169.254.169.254").
		Post(t.Context(), access(), Status{Commit: one}, noon)); r != Refused ||
		!strings.Contains(e.Message, "link-local") {
		t.Errorf("link-local address: %s %v", r, e)
	}
}

func TestPostToServerWithPrivateAuthority(t *testing.T) {
	a := &fakeAPI{kind: "github", got: map[string]string{}}
	s := httptest.NewUnstartedServer(a)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs the failed handshake
	s.StartTLS()
	t.Cleanup(s.Close)
	to := newTestTarget(t, "github", s.URL)
	if r, e := result(t, to.Post(t.Context(), access(), Status{one, "c", Success, "d"}, noon)); r != Refused ||
		!strings.Contains(e.Message, "ca.crt") || len(a.asked) > 0 {
		t.Errorf("unknown authority: %s %v", r, e)
	}
	known := git.Access{CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	config, err := known.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	with := access()
	with.HTTP = artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: config})
	if err := to.Post(t.Context(), with, Status{one, "c", Success, "d"}, noon); err != nil ||
		a.got["c"] != "success d" {
		t.Errorf("known authority: %v", err)
	}
}

// FuzzServerMessage: for any response, the quoted message is short and does not contain the token.
func FuzzServerMessage(f *testing.F) {
	for _, b := range []string{`{"message":"x"}`, `{"message":{"a":["b"]}}`, `{"error":"e","error_description":"d"}`,
		`{"message":"` + token + `"}`, "[]", "<html>", "{\"message\":\"\xff\"}"} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		got := serverMessage(answer, Access{Token: token})
		if strings.Contains(got, token) || len(got) > 12*maxQuotedLength || !utf8.ValidString(got) ||
			strings.ContainsAny(got, "\n\r") {
			t.Errorf("%q: %q", answer, got)
		}
	})
}
