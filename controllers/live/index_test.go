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

func TestNewRequiresOwnerIDAndHost(t *testing.T) {
	if _, err := New(&rest.Config{Host: "http://localhost:1"}, Options{}); err == nil {
		t.Error("New accepts an empty owner id: the index would watch all objects")
	}
	if _, err := New(&rest.Config{Host: "http://a b"}, Options{OwnerID: "x"}); err == nil {
		t.Error("New accepts an invalid host")
	}
}

func TestStartTwiceFails(t *testing.T) {
	ix, _ := idleIndex(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := ix.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := ix.Start(context.Background()); !errors.Is(err, errAlreadyStarted) {
		t.Errorf("second Start: %v", err)
	}
	// Events and calls after the end of an index do no harm.
	watched(markedObject(uid1, 9))(t, ix)
	deleted(uid1, 10)(t, ix)
	if got, want := describe(ix), uid1+"@10 hinted"; got != want {
		t.Errorf("after its end the index has %q, want %q", got, want)
	}
	ix.Wake(configMapKind.GroupKind())
	ix.SetOwnerKinds("late",
		[]*meta.RESTMapping{{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}}})
}

// The client of the index drops settings that would end or slow a watch. The configuration of the
// caller stays unchanged.
func TestNewCopiesConfigAndDropsLimits(t *testing.T) {
	cfg := &rest.Config{Host: "http://localhost:1", Timeout: 1, QPS: 0.001, Burst: 1}
	var sent *http.Request
	cfg.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { sent = r; return nil, errInvalidObject })
	})
	ix, err := New(cfg, Options{OwnerID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	w := newWatcher(ix, watchKey{gvk: configMapKind, gvr: configMapKind.GroupVersion().WithResource("configmaps")})
	for range 3 {
		if _, err := w.request("n", "x").Stream(context.Background()); !errors.Is(err, errInvalidObject) {
			t.Fatal(err)
		}
	}
	if sent.URL.Path != "/api/v1/namespaces/n/configmaps/x" {
		t.Errorf("requested %s", sent.URL.Path)
	}
	if _, limited := sent.Context().Deadline(); limited {
		t.Error("the request has a deadline")
	}
	if cfg.Timeout != 1 || cfg.QPS != 0.001 {
		t.Error("New changed the configuration of the caller")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestValueAt(t *testing.T) {
	u := &unstructured.Unstructured{
		Object: map[string]any{"spec": map[string]any{"list": []any{"a", map[string]any{"b": int64(1)}}}}}
	for pointer, want := range map[string]string{"/spec/list/1": `{"b":1}`, "/spec/list/0": `"a"`, "/spec/list/2": "",
		"/other": ""} {
		if got, err := ValueAt(u, pointer); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", pointer, got, err, want)
		}
	}
	if got, err := ValueAt(u, "spec"); err == nil {
		t.Errorf("an invalid pointer returned %s", got)
	}
}
