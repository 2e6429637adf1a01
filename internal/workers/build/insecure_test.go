package build_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/internal/workers/build"
)

// schemes records the schemes of requests by host, and sends those to images.example.com that are
// plain HTTP to a server.
type schemes struct {
	server string

	mu     sync.Mutex
	byHost map[string][]string
}

func (s *schemes) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.byHost[r.URL.Host] = append(s.byHost[r.URL.Host], r.URL.Scheme)
	s.mu.Unlock()
	if r.URL.Host != "images.example.com" || r.URL.Scheme != "http" {
		return nil, errors.New("connection refused")
	}
	r = r.Clone(r.Context())
	r.URL.Host = s.server
	return http.DefaultTransport.RoundTrip(r)
}

func TestInsecureIsForRegistryOfImage(t *testing.T) {
	s, b := newServer(t), newBuilder()
	push(t, b, s, "a", module)
	transport := &schemes{server: s.host, byHost: map[string][]string{}}
	b.Remote = append(b.Remote, remote.WithTransport(transport))
	_, err := b.Build(t.Context(), "base.example.com/workers:1", "images.example.com/shop/acme:1",
		[]build.Worker{{Name: "a", Image: "images.example.com/shop/acme/a:1"}})
	if err == nil || !strings.Contains(err.Error(), "base.example.com/workers:1") {
		t.Errorf("got %v", err)
	}
	if got := transport.byHost["base.example.com"]; len(got) == 0 || slices.Contains(got, "http") {
		t.Errorf("requests to the registry of the base image: %v", got)
	}
	_, err = b.Build(t.Context(), "images.example.com/missing:1", "images.example.com/shop/acme:1",
		[]build.Worker{{Name: "a", Image: "other.example.com/shop/acme/a:1"}})
	if err == nil || slices.Contains(transport.byHost["other.example.com"], "http") {
		t.Errorf("%v, requests to the registry of a script: %v", err, transport.byHost["other.example.com"])
	}
	if _, err = b.Build(t.Context(), base(t, s), "images.example.com/shop/acme:1", nil); err == nil {
		t.Error("the transport refuses the server of the base image")
	}
	_, err = b.Build(t.Context(), "images.example.com/base/workers:1", "images.example.com/shop/acme:1", nil)
	if err != nil {
		t.Errorf("base image in the same registry: %v", err)
	}
}
