package probe

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// stranger is a server and how it is reached.
func stranger(t *testing.T, answers http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(answers)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it tells of each client that leaves
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerToken: "s3cr3t-t0k3n", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// says answers a path with a text.
func says(texts map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text, ok := texts[r.URL.Path]; ok {
			_, _ = fmt.Fprint(w, text)
			return
		}
		http.Error(w, "s3cr3t-t0k3n", http.StatusForbidden)
	}
}

const healthyVersion = `{"gitVersion":"v1.36.3+k3s1"}`

func TestAsk(t *testing.T) {
	got, err := Ask(t.Context(), stranger(t, says(map[string]string{"/version": healthyVersion, "/api/v1/nodes": `{"metadata":{"remainingItemCount":4},"items":[{}]}`})))
	if err != nil || got.Version != "v1.36.3+k3s1" || got.Nodes == nil || *got.Nodes != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = Ask(t.Context(), stranger(t, says(map[string]string{"/version": healthyVersion})))
	if err != nil || got.Nodes != nil || got.UID != "" {
		t.Errorf("what it may not ask: %+v, %v", got, err)
	}
	const uid = "8d5ffd70-3d0b-4b0e-9f4e-2f4f6b1f7a10"
	for said, want := range map[string]string{uid: uid, "s3cr3t-t0k3n": ""} {
		got, err = Ask(t.Context(), stranger(t, says(map[string]string{"/version": healthyVersion, "/api/v1/namespaces/kube-system": `{"metadata":{"uid":"` + said + `"}}`})))
		if err != nil || got.UID != want {
			t.Errorf("uid %q: %+v, %v", said, got, err)
		}
	}
}

func TestStrangersAreNotTrusted(t *testing.T) {
	elsewhere := stranger(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("it was sent on to %s", r.URL) })
	for what, c := range map[string]struct {
		answers http.HandlerFunc
		want    string
	}{
		"no JSON":          {says(map[string]string{"/version": "<html>s3cr3t-t0k3n</html>"}), "no API server"},
		"another version":  {says(map[string]string{"/version": `{"gitVersion":"Ready"}`}), "no API server"},
		"a long version":   {says(map[string]string{"/version": `{"gitVersion":"v1.2.3` + strings.Repeat("a", 100) + `"}`}), "no API server"},
		"what it was told": {says(map[string]string{"/version": `{"gitVersion":"v1.2.3-s3cr3t-t0k3n"}`}), "no API server"},
		"nobody it knows":  {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "s3cr3t-t0k3n", http.StatusUnauthorized) }, "does not know the user"},
		"nothing allowed":  {says(nil), "may not ask for its version"},
		"an error":         {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "s3cr3t-t0k3n", http.StatusTeapot) }, "answers /version with 418"},
		"somewhere else": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.Host+"/version", http.StatusFound)
		}, "answers /version with 302"},
		"without end": {func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, strings.Repeat(" ", 2*maxAnswer)) }, "no API server"},
		"headers without end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("s3cr3t-t0k3n", 10000))
		}, ""},
		"more nodes than can be": {says(map[string]string{"/version": healthyVersion, "/api/v1/nodes": `{"metadata":{"remainingItemCount":"s3cr3t-t0k3n"}}`}), "no API server"},
	} {
		_, err := Ask(t.Context(), stranger(t, c.answers))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t-t0k3n") {
			t.Errorf("%s: it tells a secret: %v", what, err)
		}
	}
}

func TestErrorsAreTheSameEachTime(t *testing.T) {
	hangs := stranger(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	named := stranger(t, says(nil))
	named.ServerName = "another.example"
	gone := stranger(t, says(nil))
	gone.Host = "https://127.0.0.1:1"
	for want, cfg := range map[string]*rest.Config{"does not answer in time": hangs, "connection refused": gone, "for another address": named} {
		within := time.Minute
		if cfg == hangs {
			within = 500 * time.Millisecond
		}
		var first string
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := Ask(ctx, cfg)
			cancel()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q", err, want)
			}
			if first != "" && first != err.Error() {
				t.Errorf("first %q, then %q", first, err)
			}
			first = err.Error()
		}
	}
}

// What is no HTTP is quoted by those who try to read it.
func TestWhatAStrangerSaysIsNotTold(t *testing.T) {
	for what, answer := range map[string]string{
		"another protocol":  "220 %s ready\r\n",
		"a status":          "HTTP/1.1 2x0 %s\r\n\r\n",
		"a header":          "HTTP/1.1 200 OK\r\n%s\r\n\r\n",
		"a transfer coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n",
	} {
		cfg := stranger(t, func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = fmt.Fprintf(c, answer, r.Header.Get("Authorization"))
			_ = c.Close()
		})
		if _, err := Ask(t.Context(), cfg); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = fmt.Fprint(c, "HTTP/1.1 403 s3cr3t-t0k3n\r\n\r\n")
		_ = c.Close()
	}))
	t.Cleanup(proxy.Close)
	cfg := stranger(t, says(nil))
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Proxy = http.ProxyURL(at)
	if _, err := Ask(t.Context(), cfg); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("a proxy: got %v", err)
	}
}
