package scriptsapi

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestAuthentication(t *testing.T) {
	f := start(t)
	const scripts = "/accounts/acme/workers/scripts"
	f.expect(f.send("", http.MethodGet, scripts, "", nil), 401, codeAuthentication, "Authentication error")
	f.expect(f.send("unknown-token-0123456789", http.MethodGet, scripts, "", nil), 401, codeAuthentication, "not valid")
	f.expect(f.send(acmeToken[:15], http.MethodGet, scripts, "", nil), 401, codeAuthentication, "not valid")
	f.expect(f.send(otherToken, http.MethodGet, scripts, "", nil), 403, codeUnauthorized, "account acme")
	f.expect(f.send(otherToken, http.MethodPut, scripts+"/hello", "", nil), 403, codeUnauthorized, "account acme")
	f.expect(f.send(otherToken, http.MethodGet, "/accounts/missing/workers/scripts", "", nil), 403, codeUnauthorized,
		"")
	if r := f.send(acmeToken, http.MethodGet, scripts, "", nil); !r.Success {
		t.Error(r.Body)
	}
	if writes := f.newWrites(); len(writes) > 0 {
		t.Errorf("got writes %v", writes)
	}
}

func TestAccountWithoutObject(t *testing.T) {
	f := start(t)
	f.write("new", "new-token-0123456789")
	f.clock.SetTime(f.clock.Now().Add(2 * tokensMaxAge))
	f.expect(f.send("new-token-0123456789", http.MethodGet, "/accounts/new/workers/scripts", "", nil), 404,
		codeAccountNotFound, "WorkerAccount team/new does not exist: create it first")
}

func TestTokensAreReadAgain(t *testing.T) {
	f := start(t)
	const next = "next-token-0123456789"
	status := func(token string) int {
		return f.send(token, http.MethodGet, "/accounts/acme/workers/scripts", "", nil).Status
	}
	f.write("acme", next)
	if got := status(acmeToken); got != http.StatusOK {
		t.Errorf("got %d before the files are read again", got)
	}
	f.clock.SetTime(f.clock.Now().Add(2 * tokensMaxAge))
	if was, is := status(acmeToken), status(next); was != http.StatusUnauthorized || is != http.StatusOK {
		t.Errorf("got %d with the former token and %d with the next", was, is)
	}
	// A file with a mistake revokes the tokens of its account alone, and its content is not logged.
	f.write("acme", "too-short")
	f.clock.SetTime(f.clock.Now().Add(2 * tokensMaxAge))
	other := func() int {
		return f.send(otherToken, http.MethodGet, "/accounts/other/workers/scripts", "", nil).Status
	}
	if got := status(next); got != http.StatusUnauthorized || other() != http.StatusOK {
		t.Errorf("got %d with an invalid file, and %d of another account", got, other())
	}
	f.clock.SetTime(f.clock.Now().Add(2 * tokensMaxAge))
	if got := status(next); got != http.StatusUnauthorized {
		t.Errorf("got %d with an invalid file", got)
	}
	const problem = "account acme: a token is shorter than 16 bytes"
	if logs := f.allLogs(); strings.Count(logs, problem) != 1 || strings.Contains(logs, "too-short") {
		t.Errorf("got logs %s", logs)
	}
	// Tokens stay valid while the folder can't be read.
	if err := os.Rename(f.tokens, f.tokens+"-moved"); err != nil {
		t.Fatal(err)
	}
	f.clock.SetTime(f.clock.Now().Add(2 * tokensMaxAge))
	if got := other(); got != http.StatusOK || !strings.Contains(f.allLogs(), "the former ones stay valid") {
		t.Errorf("got %d without the folder", got)
	}
}

func (f *fixture) allLogs() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logs.String()
}

func TestInvalidTokensAreSkippedAtStart(t *testing.T) {
	for name, tc := range map[string]struct{ file, content, want string }{
		"short":   {"acme", "short", "account acme: a token is shorter than 16 bytes"},
		"account": {"Acme", acmeToken, "Acme is no name of an account"},
		"long":    {strings.Repeat("a", 31), acmeToken, strings.Repeat("a", 31) + " is no name of an account"},
		"large":   {"acme", strings.Repeat("x", maxTokensBytes+1), "larger than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fixture{T: t, tokens: t.TempDir()}
			f.write(tc.file, tc.content)
			f.write("other", otherToken)
			s, err := New(Options{TokensFolder: f.tokens, VersionsFolder: t.TempDir(), Log: f.logger()})
			if err != nil || !strings.Contains(f.allLogs(), tc.want) {
				t.Fatalf("got %v and logs %s, want %s", err, f.allLogs(), tc.want)
			}
			if got := s.tokens.accounts(otherToken); !slices.Equal(got, []string{"other"}) {
				t.Errorf("got accounts %v", got)
			}
			if got := s.tokens.accounts(tc.content); len(got) > 0 {
				t.Errorf("got accounts %v of an invalid file", got)
			}
		})
	}
}

func TestAccountNameOf30Characters(t *testing.T) {
	f := start(t)
	account := "a" + strings.Repeat("-", 28) + "z"
	f.write(account, "long-token-0123456789")
	f.clock.SetTime(f.clock.Now().Add(2 * tokensMaxAge))
	f.expect(f.send("long-token-0123456789", http.MethodGet, "/accounts/"+account+"/workers/scripts", "", nil), 404,
		codeAccountNotFound, "does not exist: create it first")
}

func TestClientPaths(t *testing.T) {
	f := start(t)
	f.write("third", acmeToken) // a token can be for several accounts
	f.clock.SetTime(f.clock.Now().Add(2 * tokensMaxAge))
	f.mustUpload("hello", script1)
	for path, want := range map[string]string{
		"/user/tokens/verify":                             `"status":"active"`,
		"/memberships":                                    `"account":{"id":"third","name":"third"}`,
		"/accounts":                                       `[{"id":"acme","name":"acme"},{"id":"third","name":"third"}]`,
		"/accounts/acme/workers/services/hello":           `"default_environment":{`,
		"/accounts/acme/storage/kv/namespaces":            `"result":[],"result_info":{"page":1`,
		"/accounts/acme/workers/scripts/hello/references": `"result":{}`,
		"/accounts/acme/workers/tails/by-consumer/hello":  `"result":[]`,
		"/accounts/acme/workers/scripts/hello/subdomain":  `"result":{"enabled":false,"previews_enabled":false}`,
	} {
		if r := f.send(acmeToken, http.MethodGet, path, "", nil); !r.Success || !strings.Contains(r.Body, want) {
			t.Errorf("%s: got %s, want %s", path, r.Body, want)
		}
	}
	f.expect(f.call(http.MethodGet, "/workers/subdomain", ""), 404, codeInvalid, "set workers_dev = false")
	f.expect(f.call(http.MethodPost, "/workers/scripts/hello/subdomain", `{"enabled": true}`), 400, codeInvalid,
		"set workers_dev = false")
	f.expect(f.call(http.MethodGet, "/workers/queues", ""), 404, codeNoRoute, "is no path of this API")
	r := f.call(http.MethodPost, "/workers/scripts/hello", "")
	f.expect(r, 405, codeMethod, "use DELETE, GET, PUT")
	if r.Header.Get("Allow") != "DELETE, GET, PUT" {
		t.Errorf("got header %v", r.Header)
	}
	f.expect(f.call(http.MethodGet, "/workers/scripts/a_b", ""), 400, codeScriptName, "there are no underscores")
	f.expect(f.call(http.MethodPut, "/workers/scripts/"+strings.Repeat("a", 64), ""), 400, codeScriptName, "at most 63")
	if r := f.call(http.MethodPatch, "/workers/scripts/hello/script-settings",
		`{"observability": {"enabled": true}, "logpush": false, "tags": []}`); !r.Success {
		t.Error(r.Body)
	}
	f.expect(f.call(http.MethodPatch, "/workers/scripts/hello/script-settings", `{"tags": ["a"]}`), 400, codeInvalid,
		"setting tags is not supported")
}

func TestLogsHaveNoSecrets(t *testing.T) {
	f := start(t)
	f.mustUpload("hello", script1)
	f.call(http.MethodPut, "/workers/scripts/hello/secrets?token=query-secret",
		`{"name": "KEY", "text": "hunter2", "type": "secret_text"}`)
	f.send("wrong-token-0123456789", http.MethodGet, "/accounts/acme/workers/scripts", "", nil)
	logs := f.allLogs()
	for _, secret := range []string{"hunter2", acmeToken, "wrong-token", "query-secret", script1} {
		if strings.Contains(logs, secret) {
			t.Errorf("%s is in the logs:\n%s", secret, logs)
		}
	}
	if !strings.Contains(logs, `"path"="/client/v4/accounts/acme/workers/scripts/hello/secrets"`) {
		t.Errorf("got logs %s", logs)
	}
}

func TestFewScriptsAreInMemory(t *testing.T) {
	f := start(t)
	var last func()
	for range maxConcurrentScripts {
		var err error
		if last, err = f.server.reserve(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.server.reserve(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, while as many scripts as allowed are in memory", err)
	}
	last()
	f.mustUpload("hello", script1)
	f.mustUpload("hello", script2)
}
