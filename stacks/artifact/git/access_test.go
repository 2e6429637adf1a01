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

// take lists and fetches the branch main, and gives the content of the file a.
func take(t *testing.T, repo Repository) (string, error) {
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

// expect takes a repository and checks how that ends, and that no error tells
// a secret of the access.
func expect(t *testing.T, repo Repository, want Reason) {
	t.Helper()
	got, err := take(t, repo)
	if reasonOf(t, err) != want || (err == nil && got != "content") {
		t.Errorf("got %q and reason %q, want %q: %v", got, reasonOf(t, err), want, err)
	}
	a := repo.Access
	for _, secret := range []string{a.Password, a.BearerToken, a.IdentityPassword} {
		if secret != "" && strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("tells %q: %v", secret, err)
		}
	}
}

func TestHTTPS(t *testing.T) {
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
	login, ca := overTLS(t, gitserver.WithLogin("user", "hunter2-hunter2"))
	token, tokenCA := overTLS(t, gitserver.WithToken("ghp-0123456789"))
	for name, c := range map[string]struct {
		url    string
		access Access
		want   Reason
	}{
		"user and password":             {login, Access{Username: "user", Password: "hunter2-hunter2", CA: ca}, ""},
		"another password":              {login, Access{Username: "user", Password: "hunter3-hunter3", CA: ca}, AuthenticationFailed},
		"no password":                   {login, Access{CA: ca}, AuthenticationRequired},
		"a token for a password":        {login, Access{BearerToken: "ghp-0123456789", CA: ca}, AuthenticationFailed},
		"no authority":                  {login, Access{Username: "user", Password: "hunter2-hunter2"}, CertificateInvalid},
		"an authority that is none":     {login, Access{Username: "user", Password: "hunter2-hunter2", CA: []byte("x")}, CredentialsInvalid},
		"token":                         {token, Access{BearerToken: "ghp-0123456789", CA: tokenCA}, ""},
		"another token":                 {token, Access{BearerToken: "ghp-9876543210", CA: tokenCA}, AuthenticationFailed},
		"token and password":            {token, Access{BearerToken: "ghp-0123456789", Password: "hunter2-hunter2", CA: tokenCA}, CredentialsInvalid},
		"a password in the URL as well": {strings.Replace(login, "https://", "https://user:wrong-wrong@", 1), Access{Username: "user", Password: "hunter2-hunter2", CA: ca}, ""},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Repository{URL: c.url, Access: c.access}, c.want) })
	}
}

// A server may repeat what it got, to the one who sent it; an error is for more
// people.
func TestServersDoNotSpreadSecrets(t *testing.T) {
	const secret = `hunter2"\hunter2`
	for name, tell := range map[string]func(http.ResponseWriter, string){
		"in an error": func(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, pkt("ERR no entry for "+s)) },
		"at the cut": func(w http.ResponseWriter, s string) {
			_, _ = io.WriteString(w, pkt("ERR "+strings.Repeat("x", maxSaying-8)+s))
		},
		"in a ref":  func(w http.ResponseWriter, s string) { _, _ = io.WriteString(w, pkt(s)) },
		"in a type": func(w http.ResponseWriter, s string) { w.Header().Set("Content-Type", s) },
		"in a redirect": func(w http.ResponseWriter, s string) {
			w.Header().Set("Location", "http://127.0.0.1:1/"+s)
			w.WriteHeader(302)
		},
		"in a bad status": func(w http.ResponseWriter, _ string) { w.WriteHeader(500) },
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, password, _ := r.BasicAuth()
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				tell(w, password)
			}))
			defer web.Close()
			_, err := take(t, Repository{URL: web.URL + "/x.git", Access: Access{Username: "user", Password: secret}})
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// passing is a proxy for those with a password, and how much went through it.
func passing(t *testing.T) (at *url.URL, passed *atomic.Int64) {
	t.Helper()
	passed = &atomic.Int64{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Authorization") != "Basic dXNlcjpodW50ZXIyLWh1bnRlcjI=" {
			http.Error(w, "who are you", http.StatusProxyAuthRequired)
			return
		}
		passed.Add(1)
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
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, passed
}

func TestProxy(t *testing.T) {
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
		proxy *url.URL // nil: the one that is there
		want  Reason
	}{
		"of http":                  {repo.URL(), good, nil, ""},
		"of https":                 {web.URL + path, good, nil, ""},
		"of http, no password":     {repo.URL(), nil, nil, ProxyFailed},
		"of https, no password":    {web.URL + path, nil, nil, ProxyFailed},
		"of https, wrong password": {web.URL + path, url.UserPassword("user", "wrong-wrong"), nil, ProxyFailed},
		"that is not there":        {web.URL + path, nil, nobody, ProxyFailed},
		"that is link-local":       {web.URL + path, nil, metadata, URLInvalid},
		"to a link-local address":  {"https://169.254.169.254/x.git", good, nil, URLInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			// One for each: a connection that was not needed in the end may come late.
			at, passed := passing(t)
			if at.User = c.user; c.proxy != nil {
				at = c.proxy
			}
			expect(t, Repository{URL: c.url, Access: Access{CA: ca, Proxy: at}}, c.want)
			if went := passed.Load(); (went > 0) != (c.want == "") {
				t.Errorf("%d requests through the proxy", went)
			}
		})
	}
}

func TestSSH(t *testing.T) {
	key := func(password string) *gitserver.Key {
		t.Helper()
		k, err := gitserver.NewKey(password)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	mine, locked, stranger := key(""), key("open-sesame"), key("")
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
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	go func() {
		for conn, err := mute.Accept(); err == nil; conn, err = mute.Accept() {
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			_ = conn.Close()
		}
	}()
	d, guarded := serve(mine), serve(locked)
	known, host := []byte(d.KnownHosts()), strings.Fields(d.KnownHosts())[0]
	access := func(k *gitserver.Key) Access { return Access{Identity: k.Private, KnownHosts: known} }
	with := func(change func(*Access)) Access { a := access(mine); change(&a); return a }
	for name, c := range map[string]struct {
		url    string
		access Access
		want   Reason
	}{
		"a key":                   {d.URL(repo), access(mine), ""},
		"a key with a password":   {guarded.URL(repo), Access{Identity: locked.Private, IdentityPassword: "open-sesame", KnownHosts: []byte(guarded.KnownHosts())}, ""},
		"no key":                  {d.URL(repo), Access{KnownHosts: known}, AuthenticationRequired},
		"another key":             {d.URL(repo), access(stranger), AuthenticationFailed},
		"a key, no password":      {guarded.URL(repo), access(locked), CredentialsInvalid},
		"a key, another password": {guarded.URL(repo), Access{Identity: locked.Private, IdentityPassword: "open-simsim", KnownHosts: known}, CredentialsInvalid},
		"a key that is none":      {d.URL(repo), with(func(a *Access) { a.Identity = []byte("x") }), CredentialsInvalid},
		"no known hosts":          {d.URL(repo), with(func(a *Access) { a.KnownHosts = []byte("# none\n\n") }), CredentialsInvalid},
		"odd known hosts":         {d.URL(repo), with(func(a *Access) { a.KnownHosts = []byte("nonsense\n") }), CredentialsInvalid},
		"another host is known":   {guarded.URL(repo), access(mine), HostKeyUnknown},
		"another key is known":    {d.URL(repo), with(func(a *Access) { a.KnownHosts = []byte(host + " " + stranger.Public) }), HostKeyMismatch},
		"the key is revoked": {d.URL(repo), with(func(a *Access) {
			a.KnownHosts = []byte("@revoked * " + strings.TrimPrefix(d.KnownHosts(), host))
		}), HostKeyMismatch},
		"no such repository":        {strings.Replace(d.URL(repo), "fleet", "nothing", 1), access(mine), RepositoryNotFound},
		"a path with a quote":       {strings.Replace(d.URL(repo), "fleet", "fl'; echo eet", 1), access(mine), RepositoryNotFound},
		"no path":                   {"ssh://git@" + strings.Trim(host, "[]"), access(mine), URLInvalid},
		"a password":                {strings.Replace(d.URL(repo), "git@", "git:secret-secret@", 1), access(mine), URLInvalid},
		"a link-local address":      {"ssh://git@169.254.169.254/x.git", access(mine), URLInvalid},
		"nobody listens":            {"ssh://git@127.0.0.1:1/x.git", access(mine), OperationFailed},
		"not SSH":                   {"ssh://git@" + mute.Addr().String() + "/x.git", access(mine), OperationFailed},
		"a proxy of http":           {d.URL(repo), with(func(a *Access) { a.Proxy = &url.URL{Scheme: "http", Host: "127.0.0.1:1"} }), CredentialsInvalid},
		"a proxy that is not there": {d.URL(repo), with(func(a *Access) { a.Proxy = &url.URL{Scheme: "socks5", Host: "127.0.0.1:1"} }), ProxyFailed},
		"a proxy to a link-local address": {"ssh://git@169.254.169.254/x.git",
			with(func(a *Access) { a.Proxy = &url.URL{Scheme: "socks5", Host: "127.0.0.1:1"} }), URLInvalid},
	} {
		t.Run(name, func(t *testing.T) { expect(t, Repository{URL: c.url, Access: c.access}, c.want) })
	}

	before := d.Connections()
	r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: d.URL(repo), Access: access(mine)})
	if err != nil {
		t.Fatal(err)
	}
	if n := d.Connections() - before; n != 1 {
		t.Errorf("%d connections to list, want 1", n)
	}
	c := checkout(t, r, id)
	if n := len(c.store.objects); n != 3 || !maps.Equal(files(t, c.FS()), map[string]string{"a": "content"}) {
		t.Errorf("%d objects, want the commit, its folder and its file", n)
	}
	if _, err := r.Fetch(t.Context(), strings.Repeat("1", 40)); reasonOf(t, err) != CommitNotFound {
		t.Errorf("a commit that is not there: %v", err)
	}
}
