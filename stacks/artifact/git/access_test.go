package git

import (
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

// fetchFileA fetches the branch main and returns the content of the file a.
func fetchFileA(t *testing.T, repo Repository) (string, error) {
	t.Helper()
	r, err := newClient(t, Options{}).List(t.Context(), repo)
	if err != nil {
		return "", err
	}
	id, err := r.Head("main")
	if err != nil {
		return "", err
	}
	c, err := r.Fetch(t.Context(), id)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return files(t, c.FS())["a"], nil
}

// expectFetch fetches a repository, checks the reason of the error, and that the error contains
// no secret of the Access.
func expectFetch(t *testing.T, repo Repository, want Reason) {
	t.Helper()
	got, err := fetchFileA(t, repo)
	if reasonOf(t, err) != want || (err == nil && got != "content") {
		t.Errorf("got %q and reason %q, want %q: %v", got, reasonOf(t, err), want, err)
	}
	a := repo.Access
	for _, secret := range []string{a.Password, a.BearerToken, a.IdentityPassword} {
		if secret != "" && strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("the error contains %q: %v", secret, err)
		}
	}
}

func TestFetchOverHTTPS(t *testing.T) {
	certificate := func(s *httptest.Server) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	}
	overTLS := func(t *testing.T, o ...gitserver.Option) (string, []byte) {
		t.Helper()
		s, repo := newRepo(t, o...)
		commit(t, repo, map[string]string{"a": "content"})
		web := httptest.NewTLSServer(s.Handler())
		t.Cleanup(web.Close)
		return web.URL + strings.TrimPrefix(repo.URL(), s.URL()), certificate(web)
	}
	login, ca := overTLS(t, gitserver.WithBasicAuth("user", "hunter2-hunter2"))
	token, tokenCA := overTLS(t, gitserver.WithBearerToken("ghp-0123456789"))
	for name, c := range map[string]struct {
		url    string
		access Access
		want   Reason
	}{
		"user and password": {login, Access{Username: "user", Password: "hunter2-hunter2", CA: ca}, ""},
		"wrong password": {login, Access{Username: "user", Password: "hunter3-hunter3", CA: ca},
			AuthenticationFailed},
		"no password":                 {login, Access{CA: ca}, AuthenticationRequired},
		"token instead of a password": {login, Access{BearerToken: "ghp-0123456789", CA: ca}, AuthenticationFailed},
		"unknown authority": {login, Access{Username: "user", Password: "hunter2-hunter2"},
			CertificateInvalid},
		"invalid authority": {login, Access{Username: "user", Password: "hunter2-hunter2", CA: []byte("x")},
			CredentialsInvalid},
		"token": {token, Access{BearerToken: "ghp-0123456789", CA: tokenCA}, ""},
		"wrong token": {token, Access{BearerToken: "ghp-9876543210", CA: tokenCA},
			AuthenticationFailed},
		"token and password": {token,
			Access{BearerToken: "ghp-0123456789", Password: "hunter2-hunter2", CA: tokenCA}, CredentialsInvalid},
		"another password in the URL": {strings.Replace(login, "https://", "https://user:wrong-wrong@", 1),
			Access{Username: "user", Password: "hunter2-hunter2", CA: ca}, ""},
	} {
		t.Run(name, func(t *testing.T) { expectFetch(t, Repository{URL: c.url, Access: c.access}, c.want) })
	}
}

// A server can repeat credentials in its response. Errors must mask them, because other people
// read the errors.
func TestErrorsMaskSecretsFromServer(t *testing.T) {
	const secret = `hunter2"\hunter2`
	for name, respond := range map[string]func(http.ResponseWriter, string){
		"in an error line": func(w http.ResponseWriter, s string) {
			_, _ = io.WriteString(w, pktLine("ERR no entry for "+s))
		},
		"at the truncation": func(w http.ResponseWriter, s string) {
			_, _ = io.WriteString(w, pktLine("ERR "+strings.Repeat("x", maxServerText-8)+s))
		},
		"in a ref":            func(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, pktLine(s)) },
		"in the content type": func(w http.ResponseWriter, s string) { w.Header().Set("Content-Type", s) },
		"in a redirect": func(w http.ResponseWriter, s string) {
			w.Header().Set("Location", "http://127.0.0.1:1/"+s)
			w.WriteHeader(302)
		},
		"with an error status": func(w http.ResponseWriter, _ string) { w.WriteHeader(500) },
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, password, _ := r.BasicAuth()
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				respond(w, password)
			}))
			defer web.Close()
			_, err := fetchFileA(t,
				Repository{URL: web.URL + "/x.git", Access: Access{Username: "user", Password: secret}})
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// newAuthProxy starts a proxy that requires a password, and counts the requests that it forwards.
func newAuthProxy(t *testing.T) (proxyURL *url.URL, forwarded *atomic.Int64) {
	t.Helper()
	forwarded = &atomic.Int64{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic dXNlcjpodW50ZXIyLWh1bnRlcjI=" {
			http.Error(w, "authentication required", http.StatusProxyAuthRequired)
			return
		}
		forwarded.Add(1)
		if r.Method != http.MethodConnect {
			(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}}).ServeHTTP(w, r)
			return
		}
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		down, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(up, down); _ = up.Close() }()
		_, _ = io.Copy(down, up)
		_ = down.Close()
	}))
	t.Cleanup(proxy.Close)
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	return proxyURL, forwarded
}

func TestFetchThroughProxy(t *testing.T) {
	s, repo := newRepo(t)
	commit(t, repo, map[string]string{"a": "content"})
	web := httptest.NewTLSServer(s.Handler())
	defer web.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})
	path := strings.TrimPrefix(repo.URL(), s.URL())
	good := url.UserPassword("user", "hunter2-hunter2")
	nobody := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	metadata := &url.URL{Scheme: "http", Host: "169.254.169.254:80"}
	for name, c := range map[string]struct {
		url   string
		user  *url.Userinfo
		proxy *url.URL // nil: the started proxy
		want  Reason
	}{
		"http":                  {repo.URL(), good, nil, ""},
		"https":                 {web.URL + path, good, nil, ""},
		"http, no password":     {repo.URL(), nil, nil, ProxyFailed},
		"https, no password":    {web.URL + path, nil, nil, ProxyFailed},
		"https, wrong password": {web.URL + path, url.UserPassword("user", "wrong-wrong"), nil, ProxyFailed},
		"unreachable proxy":     {web.URL + path, nil, nobody, ProxyFailed},
		"link-local proxy":      {web.URL + path, nil, metadata, URLInvalid},
		"link-local server":     {"https://169.254.169.254/x.git", good, nil, URLInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			// One proxy per case, because an unused connection of an earlier case can arrive late.
			at, passed := newAuthProxy(t)
			if at.User = c.user; c.proxy != nil {
				at = c.proxy
			}
			expectFetch(t, Repository{URL: c.url, Access: Access{CA: ca, Proxy: at}}, c.want)
			if went := passed.Load(); (went > 0) != (c.want == "") {
				t.Errorf("%d requests through the proxy", went)
			}
		})
	}
}

func TestFetchOverSSH(t *testing.T) {
	key := func(password string) *gitserver.Key {
		t.Helper()
		k, err := gitserver.NewKey(password)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	accepted, encrypted, stranger := key(""), key("open-sesame"), key("")
	s, repo := newRepo(t)
	commit(t, repo, map[string]string{"a": "old"})
	id := commit(t, repo, map[string]string{"a": "content"})
	serve := func(k *gitserver.Key) *gitserver.SSH {
		t.Helper()
		d, err := s.ServeSSH(k)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d
	}
	notSSH, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = notSSH.Close() }()
	go func() {
		for conn, err := notSSH.Accept(); err == nil; conn, err = notSSH.Accept() {
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = conn.Close()
		}
	}()
	d, guarded := serve(accepted), serve(encrypted)
	known, host := []byte(d.KnownHosts()), strings.Fields(d.KnownHosts())[0]
	access := func(k *gitserver.Key) Access { return Access{Identity: k.Private, KnownHosts: known} }
	with := func(change func(*Access)) Access { a := access(accepted); change(&a); return a }
	for name, c := range map[string]struct {
		url    string
		access Access
		want   Reason
	}{
		"a key": {d.URL(repo), access(accepted), ""},
		"a key with a password": {guarded.URL(repo),
			Access{Identity: encrypted.Private, IdentityPassword: "open-sesame",
				KnownHosts: []byte(guarded.KnownHosts())}, ""},
		"no key":             {d.URL(repo), Access{KnownHosts: known}, AuthenticationRequired},
		"wrong key":          {d.URL(repo), access(stranger), AuthenticationFailed},
		"a key, no password": {guarded.URL(repo), access(encrypted), CredentialsInvalid},
		"a key, wrong password": {guarded.URL(repo),
			Access{Identity: encrypted.Private, IdentityPassword: "open-simsim", KnownHosts: known},
			CredentialsInvalid},
		"invalid key": {d.URL(repo), with(func(a *Access) {
			a.Identity = []byte("x")
		}), CredentialsInvalid},
		"no known hosts": {d.URL(repo), with(func(a *Access) {
			a.KnownHosts = []byte("# none\n\n")
		}), CredentialsInvalid},
		"invalid known hosts": {d.URL(repo), with(func(a *Access) {
			a.KnownHosts = []byte("nonsense\n")
		}), CredentialsInvalid},
		"known hosts without the host": {guarded.URL(repo), access(accepted), HostKeyUnknown},
		"known hosts with another key": {d.URL(repo), with(func(a *Access) {
			a.KnownHosts = []byte(host + " " + stranger.Public)
		}), HostKeyMismatch},
		"revoked host key": {d.URL(repo), with(func(a *Access) {
			a.KnownHosts = []byte("@revoked * " + strings.TrimPrefix(d.KnownHosts(), host))
		}), HostKeyMismatch},
		"no such repository": {strings.Replace(d.URL(repo), "fleet", "nothing", 1), access(accepted),
			RepositoryNotFound},
		"a path with a quote": {strings.Replace(d.URL(repo), "fleet", "fl'; echo eet", 1), access(accepted),
			RepositoryNotFound},
		"no path": {"ssh://git@" + strings.Trim(host, "[]"), access(accepted), URLInvalid},
		"a password": {strings.Replace(d.URL(repo), "git@", "git:secret-secret@", 1), access(accepted),
			URLInvalid},
		"a link-local address": {"ssh://git@169.254.169.254/x.git", access(accepted), URLInvalid},
		"nothing listens":      {"ssh://git@127.0.0.1:1/x.git", access(accepted), OperationFailed},
		"not SSH":              {"ssh://git@" + notSSH.Addr().String() + "/x.git", access(accepted), OperationFailed},
		"an http proxy": {d.URL(repo), with(func(a *Access) {
			a.Proxy = &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
		}), CredentialsInvalid},
		"unreachable proxy": {d.URL(repo), with(func(a *Access) {
			a.Proxy = &url.URL{Scheme: "socks5", Host: "127.0.0.1:1"}
		}), ProxyFailed},
		"link-local address through a proxy": {"ssh://git@169.254.169.254/x.git",
			with(func(a *Access) { a.Proxy = &url.URL{Scheme: "socks5", Host: "127.0.0.1:1"} }), URLInvalid},
	} {
		t.Run(name, func(t *testing.T) { expectFetch(t, Repository{URL: c.url, Access: c.access}, c.want) })
	}

	before := d.Connections()
	r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: d.URL(repo), Access: access(accepted)})
	if err != nil {
		t.Fatal(err)
	}
	if n := d.Connections() - before; n != 1 {
		t.Errorf("%d connections to list, want 1", n)
	}
	c := fetchCheckout(t, r, id)
	if n := len(c.store.objects); n != 3 || !maps.Equal(files(t, c.FS()), map[string]string{"a": "content"}) {
		t.Errorf("%d objects, want a commit, a tree and a blob", n)
	}
	if _, err := r.Fetch(t.Context(), strings.Repeat("1", 40)); reasonOf(t, err) != CommitNotFound {
		t.Errorf("an unknown commit: %v", err)
	}
}
