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

// startServer starts a TLS server and returns a client configuration for it.
func startServer(t *testing.T, answers http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(answers)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the server logs every client that disconnects
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &rest.Config{Host: server.URL, BearerToken: "s3cr3t-t0k3n",
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// respond returns a handler that answers each path with a text, and every other path with 403.
func respond(texts map[string]string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text, ok := texts[r.URL.Path]; ok {
			_, _ = fmt.Fprint(w, text)
			return
		}
		http.Error(w, "s3cr3t-t0k3n", http.StatusForbidden)
	}
}

const healthyVersion = `{"gitVersion":"v1.36.3+k3s1"}`

func TestRun(t *testing.T) {
	got, err := Run(t.Context(),
		startServer(t, respond(map[string]string{"/version": healthyVersion,
			"/api/v1/nodes": `{"metadata":{"remainingItemCount":4},"items":[{}]}`})))
	if err != nil || got.Version != "v1.36.3+k3s1" || got.Nodes == nil || *got.Nodes != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
	got, err = Run(t.Context(), startServer(t, respond(map[string]string{"/version": healthyVersion})))
	if err != nil || got.Nodes != nil || got.UID != "" {
		t.Errorf("without permissions: %+v, %v", got, err)
	}
	const uid = "8d5ffd70-3d0b-4b0e-9f4e-2f4f6b1f7a10"
	for uidInResponse, want := range map[string]string{uid: uid, "s3cr3t-t0k3n": ""} {
		got, err = Run(t.Context(),
			startServer(t, respond(map[string]string{"/version": healthyVersion,
				"/api/v1/namespaces/kube-system": `{"metadata":{"uid":"` + uidInResponse + `"}}`})))
		if err != nil || got.UID != want {
			t.Errorf("uid %q: %+v, %v", uidInResponse, got, err)
		}
	}
}

func TestUntrustedResponsesAreRejected(t *testing.T) {
	elsewhere := startServer(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect to %s was followed", r.URL)
	})
	for what, c := range map[string]struct {
		answers http.HandlerFunc
		want    string
	}{
		"no JSON": {respond(map[string]string{"/version": "<html>s3cr3t-t0k3n</html>"}),
			"not a Kubernetes API server"},
		"invalid version": {respond(map[string]string{"/version": `{"gitVersion":"Ready"}`}),
			"not a Kubernetes API server"},
		"long version": {respond(map[string]string{"/version": `{"gitVersion":"v1.2.3` + strings.Repeat("a", 100) +
			`"}`}), "not a Kubernetes API server"},
		"token in version": {respond(map[string]string{"/version": `{"gitVersion":"v1.2.3-s3cr3t-t0k3n"}`}),
			"not a Kubernetes API server"},
		"unauthorized": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "s3cr3t-t0k3n", http.StatusUnauthorized)
		}, "credentials of the kubeconfig are not accepted"},
		"forbidden": {respond(nil), "may not get /version"},
		"other status": {func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "s3cr3t-t0k3n", http.StatusTeapot)
		}, "GET /version returns 418"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.Host+"/version", http.StatusFound)
		}, "GET /version returns 302"},
		"endless body": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, strings.Repeat(" ", 2*maxResponseBytes))
		}, "not a Kubernetes API server"},
		"endless headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("s3cr3t-t0k3n", 10000))
		}, ""},
		"invalid node count": {respond(map[string]string{"/version": healthyVersion,
			"/api/v1/nodes": `{"metadata":{"remainingItemCount":"s3cr3t-t0k3n"}}`}), "not a Kubernetes API server"},
	} {
		_, err := Run(t.Context(), startServer(t, c.answers))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t-t0k3n") {
			t.Errorf("%s: the error quotes a secret: %v", what, err)
		}
	}
}

func TestErrorsAreStable(t *testing.T) {
	hangs := startServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	named := startServer(t, respond(nil))
	named.ServerName = "another.example"
	gone := startServer(t, respond(nil))
	gone.Host = "https://127.0.0.1:1"
	for want, cfg := range map[string]*rest.Config{"the request timed out": hangs, "connection refused": gone,
		"for another address": named} {
		within := time.Minute
		if cfg == hangs {
			within = 500 * time.Millisecond
		}
		var first string
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			_, err := Run(ctx, cfg)
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

// The errors of Go's HTTP client quote malformed responses.
func TestErrorsOmitMalformedResponses(t *testing.T) {
	for what, answer := range map[string]string{
		"another protocol": "220 %s ready\r\n",
		"status":           "HTTP/1.1 2x0 %s\r\n\r\n",
		"header":           "HTTP/1.1 200 OK\r\n%s\r\n\r\n",
		"transfer coding":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: %s\r\n\r\n",
	} {
		cfg := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = fmt.Fprintf(c, answer, r.Header.Get("Authorization"))
			_ = c.Close()
		})
		if _, err := Run(t.Context(), cfg); err == nil || strings.Contains(err.Error(), "s3cr3t") {
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
	cfg := startServer(t, respond(nil))
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Proxy = http.ProxyURL(at)
	if _, err := Run(t.Context(), cfg); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("proxy: got %v", err)
	}
}
