package artifact

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestFetchFailures(t *testing.T) {
	b := makeTarball(t, file("a", strings.Repeat("content", 300)))
	limits := Limits{DownloadBytes: 4096}
	big := bytes.Repeat([]byte("x"), 4097)
	answer := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	cases := map[string]struct {
		handler  http.HandlerFunc
		want     Reason
		requests int64
	}{
		"other content": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(makeTarball(t, file("evil", "x")))
		}, DigestMismatch, 1},
		"cut off without a length": {func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(b[:20])
		}, DigestMismatch, 1},
		"cut off with a length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			_, _ = w.Write(b[:20])
		}, Unreachable, 3},
		"connection closed": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unreachable, 3},
		"too large, with a length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4097")
			_, _ = w.Write(big)
		}, TooLarge, 1},
		"too large, without a length": {func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(big)
		}, TooLarge, 1},
		"500": {answer(500), Unreachable, 3},
		"503": {answer(503), Unreachable, 3},
		"429": {answer(429), Unreachable, 3},
		"404": {answer(404), NotFound, 1},
		"410": {answer(410), NotFound, 1},
		"401": {answer(401), AccessDenied, 1},
		"403": {answer(403), AccessDenied, 1},
		"204": {answer(204), Unreachable, 1},
		"redirect to a link-local address": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
		}, RefusedAddress, 1},
		"redirect to a link-local IPv6 address": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://[fe80::1%25lo]/", http.StatusFound)
		}, RefusedAddress, 1},
		"redirect to itself": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		}, RefusedAddress, 6},
		"redirect to a file": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}, Unreachable, 3},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.handler)
			dir := t.TempDir()
			f := newFetcher(t, Options{Dir: dir, Limits: limits})
			_, err := f.Fetch(t.Context(), Artifact{URL: s.URL + "/x?token=secret", Digest: digestOf(b)})
			if got := reasonOf(t, err); got != c.want {
				t.Errorf("reason %q, want %q: %v", got, c.want, err)
			}
			if strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("the error contains a secret of the URL: %v", err)
			}
			if n := s.requests.Load(); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			expectCachedTrees(t, dir)
		})
	}
}

func TestFetchRejectsInvalidArtifactWithoutRequest(t *testing.T) {
	sum := digestOf(nil)
	for _, c := range []struct {
		url, digest string
		want        Reason
	}{
		{"http://169.254.169.254/x", sum, RefusedAddress},
		{"http://[::ffff:169.254.169.254]/x", sum, RefusedAddress},
		{"http://[fe80::1]/x", sum, RefusedAddress},
		{"file:///etc/passwd", sum, RefusedAddress},
		{"ftp://example.com/x", sum, RefusedAddress},
		{"://", sum, RefusedAddress},
		{"", sum, RefusedAddress},
		{"http://example.com/x", "", UnsupportedDigest},
		{"http://example.com/x", "md5:d41d8cd98f00b204e9800998ecf8427e", UnsupportedDigest},
	} {
		dir := t.TempDir()
		f := newFetcher(t, Options{Dir: dir})
		_, err := f.Fetch(t.Context(), Artifact{URL: c.url, Digest: c.digest})
		if got := reasonOf(t, err); got != c.want {
			t.Errorf("%s: reason %q, want %q: %v", c.url, got, c.want, err)
		}
		expectCachedTrees(t, dir)
	}
}

func TestDialerRefusesLinkLocal(t *testing.T) {
	// A DNS name can resolve to any address, so the dialed address is checked.
	for address, refused := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.1.1]:80": true, "224.0.0.1:80": true,
		"nonsense":     true,
		"127.0.0.1:80": false, "10.0.0.1:80": false, "[2001:db8::1]:443": false,
	} {
		err := checkDialAddress(t.Context(), "tcp", address, nil)
		if (err != nil) != refused {
			t.Errorf("%s: %v, refused should be %v", address, err, refused)
		}
	}
}

func TestFetchRetriesUnavailableServer(t *testing.T) {
	b := makeTarball(t, file("a", "content"))
	var s *server
	s = serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if s.requests.Load() < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(b)
	})
	fetch(t, newFetcher(t, Options{}), s.URL, b).Release()
	if n := s.requests.Load(); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestFetchStopsRetryingWhenContextIsDone(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	f := newFetcher(t, Options{Backoff: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := f.Fetch(ctx, Artifact{URL: s.URL, Digest: digestOf(nil)})
	if got := reasonOf(t, err); got != Unreachable || ctx.Err() == nil {
		t.Errorf("reason %q: %v", got, err)
	}
}

// blockingBody is a response body that blocks until the context is done.
type blockingBody struct{ ctx context.Context }

func (s blockingBody) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }
func (s blockingBody) Close() error             { return nil }

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A server that sends headers and then hangs costs one timeout. Fetches of the same URL
// shortly after fail at once.
func TestFetchBacksOffAfterTimeout(t *testing.T) {
	// Fake time: on a busy machine a real response can take as long as the timeout.
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		client := &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			requests++
			return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: blockingBody{r.Context()},
				Request: r}, nil
		})}
		f := newFetcher(t, Options{Timeout: time.Minute, ResponseHeaderTimeout: DefaultResponseHeaderTimeout,
			Client: client})
		own := &http.Client{Transport: client.Transport}
		try := func(what, path string, client *http.Client, wantAsked int, wantTook time.Duration) {
			t.Helper()
			began := time.Now()
			_, err := f.Fetch(t.Context(),
				Artifact{URL: "http://server.example/" + path, Digest: digestOf(nil), Client: client})
			if got := reasonOf(t, err); got != Unreachable || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: reason %q: %v", what, got, err)
			}
			if took := time.Since(began).Round(time.Second); requests != wantAsked || took != wantTook {
				t.Errorf("%s: %d requests so far, took %s, want %d and %s", what, requests, took, wantAsked, wantTook)
			}
		}
		try("first fetch", "a.tar.gz", nil, 1, time.Minute)
		try("same URL at once", "a.tar.gz", nil, 1, 0)
		try("same URL with its own client", "a.tar.gz", own, 2, time.Minute)
		time.Sleep(DefaultResponseHeaderTimeout)
		try("same URL after the back-off", "a.tar.gz", nil, 3, time.Minute)
		try("another URL at once", "b.tar.gz", nil, 4, time.Minute)
	})
}

func TestFetchTimesOutWithoutResponse(t *testing.T) {
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	_, err := newFetcher(t, Options{ResponseHeaderTimeout: 50 * time.Millisecond}).
		Fetch(t.Context(), Artifact{URL: s.URL, Digest: digestOf(nil)})
	if got := reasonOf(t, err); got != Unreachable || !timedOut(err) {
		t.Errorf("reason %q: %v", got, err)
	}
	if n := s.requests.Load(); n > 1 {
		t.Errorf("%d requests", n)
	}
}

func TestFetchDoesNotDecodeContent(t *testing.T) {
	b := makeTarball(t, file("a", "content"))
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(b)
	})
	fetch(t, newFetcher(t, Options{}), s.URL, b).Release()
}

func TestFetchRemovesUnsafeArchive(t *testing.T) {
	b := makeTarball(t, file("../../evil", "x"))
	s := serveBytes(t, b)
	dir := t.TempDir()
	f := newFetcher(t, Options{Dir: dir})
	_, err := f.Fetch(t.Context(), Artifact{URL: s.URL, Digest: digestOf(b)})
	if got := reasonOf(t, err); got != UnsafePath {
		t.Errorf("reason %q, want %q: %v", got, UnsafePath, err)
	}
	expectCachedTrees(t, dir)
}

func TestRedirectToPlainHTTPIsRefused(t *testing.T) {
	request := func(url string) *http.Request { return httptest.NewRequest(http.MethodGet, url, nil) }
	for _, c := range []struct {
		from, to string
		refused  bool
	}{
		{"https://a.example/", "http://a.example/", true},
		{"https://a.example/", "ftp://a.example/", true},
		{"https://a.example/", "https://b.example/", false},
		{"http://a.example/", "https://a.example/", false},
		{"http://a.example/", "http://b.example/", false},
	} {
		err := checkRedirect(request(c.to), []*http.Request{request(c.from)})
		if (err != nil) != c.refused {
			t.Errorf("%s to %s: %v, refused should be %v", c.from, c.to, err, c.refused)
		}
	}
}

func TestProxyGetsNoLinkLocalRequest(t *testing.T) {
	proxy := serveBytes(t, []byte("credentials of the machine"))
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := NewHTTPClientWith(ClientOptions{Proxy: address})
	for host, asked := range map[string]int64{"169.254.169.254": 0, "[fe80::1]": 0, "[::ffff:169.254.169.254]": 0,
		"example.com": 1} {
		before := proxy.requests.Load()
		resp, err := c.Get("http://" + host + "/")
		if err == nil {
			_ = resp.Body.Close()
		}
		if n := proxy.requests.Load() - before; n != asked {
			t.Errorf("%s: the proxy got %d requests, want %d: %v", host, n, asked, err)
		}
	}
}

func TestClientTrustsGivenAuthority(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	for trusted, c := range map[bool]*http.Client{
		false: NewHTTPClient(),
		true:  NewHTTPClientWith(ClientOptions{TLS: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}),
	} {
		resp, err := c.Get(server.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != trusted {
			t.Errorf("trusted %v: %v", trusted, err)
		}
	}
}
