package live

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

func TestNewNeedsAnOwner(t *testing.T) {
	if _, err := New(&rest.Config{Host: "http://localhost:1"}, Options{}); err == nil {
		t.Error("an index was made that would watch everything")
	}
	if _, err := New(&rest.Config{Host: "http://a b"}, Options{Owner: "x"}); err == nil {
		t.Error("an index was made of a host that is none")
	}
}

func TestStartOnce(t *testing.T) {
	ix, _ := idle(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ix.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := ix.Start(context.Background()); !errors.Is(err, ErrStarted) {
		t.Errorf("started twice: %v", err)
	}
	// What an index is still told after its end does no harm.
	watched(markedObject(uid1, 9))(t, ix)
	deleted(uid1, 10)(t, ix)
	if got, want := describe(ix), uid1+"@10 hinted"; got != want {
		t.Errorf("after its end it knows %q, want %q", got, want)
	}
	ix.Wake(configMapKind.GroupKind())
	ix.Use("late", []*meta.RESTMapping{{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}}})
}

// TestConfigIsOurs: what would end or slow a watch stays out of the client, and
// the caller's configuration is not touched.
func TestConfigIsOurs(t *testing.T) {
	cfg := &rest.Config{Host: "http://localhost:1", Timeout: 1, QPS: 0.001, Burst: 1}
	var used *http.Request
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { used = r; return nil, errNoName })
	})
	ix, err := New(cfg, Options{Owner: "x"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWatcher(ix, watchKey{gvk: configMapKind, gvr: configMapKind.GroupVersion().WithResource("configmaps")})
	for range 3 {
		if _, err := w.request("n", "x").Stream(context.Background()); !errors.Is(err, errNoName) {
			t.Fatal(err)
		}
	}
	if used.URL.Path != "/api/v1/namespaces/n/configmaps/x" {
		t.Errorf("asked for %s", used.URL.Path)
	}
	if _, limited := used.Context().Deadline(); limited {
		t.Error("the request has a deadline")
	}
	if cfg.Timeout != 1 || cfg.QPS != 0.001 {
		t.Error("the caller's configuration was changed")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestValueAt(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"list": []any{"a", map[string]any{"b": int64(1)}}}}}
	for pointer, want := range map[string]string{"/spec/list/1": `{"b":1}`, "/spec/list/0": `"a"`, "/spec/list/2": "", "/other": ""} {
		if got, err := ValueAt(u, pointer); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", pointer, got, err, want)
		}
	}
	if got, err := ValueAt(u, "spec"); err == nil {
		t.Errorf("what is no pointer led to %s", got)
	}
}
