package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serve serves an object that another writer changes before the first PATCH.
func serve(t *testing.T, object, ready string) (e *endpoint, patches *[]string) {
	version, sent := 1, []string{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		etag := fmt.Sprintf(`"%d"`, version)
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodGet:
			w.Header().Set("ETag", etag)
			_, _ = io.WriteString(w, object)
			version = min(version+1, 2)
		case r.Header.Get("If-Match") != etag:
			w.WriteHeader(http.StatusPreconditionFailed)
		default:
			body, _ := io.ReadAll(r.Body)
			sent = append(sent, string(body))
			w.Header().Set("Ksctl-Ready", ready)
		}
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	e = &endpoint{url: server.URL, tokenFile: filepath.Join(dir, "token")}
	for file, content := range map[string]string{e.tokenFile: "secret\n", ca: string(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.trust(ca); err != nil {
		t.Fatal(err)
	}
	return e, &sent
}

func TestScaleRepeatsLostRace(t *testing.T) {
	for object, patch := range map[string]string{
		`{}`: `{"spec":{"replicaCount":3}}`,
		`{"spec": {"autoscaling": {"enabled": true}}}`: `{"spec":{"autoscaling":{"minReplicas":3}}}`,
	} {
		e, patches := serve(t, object, "True Ready: done")
		if err := e.scale(t.Context(), "/v1/x", 3); err != nil || len(*patches) != 1 || (*patches)[0] != patch {
			t.Errorf("%v, patches %v", err, *patches)
		}
	}
}

func TestScaleReportsStateAndErrors(t *testing.T) {
	e, _ := serve(t, "{}", "False Failed: no space")
	if err := e.scale(t.Context(), "/v1/x", 3); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Error(err)
	}
	if err := os.WriteFile(e.tokenFile, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.scale(t.Context(), "/v1/x", 3); err == nil || !strings.HasPrefix(err.Error(), "401") {
		t.Error(err)
	}
}
