package manager

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"
)

// A cancellation during startup is not a failure.
func TestRunReturnsNilWhenCanceledDuringStartup(t *testing.T) {
	// No fixed ports: another process may use them.
	ctx, stop := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		stop()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	defer stop()
	if err := Run(ctx, &rest.Config{Host: server.URL},
		parseFlags(t, "--metrics-addr=0", "--health-addr=0", "--storage-addr=127.0.0.1:0",
			"--storage-path="+t.TempDir())); err != nil {
		t.Error(err)
	}
	if ctx.Err() == nil {
		t.Error("Run returned without a request to the API server")
	}
}
