// Command rest changes the replicas of a Minimart with HTTPS requests, and waits until the change
// is installed, see docs/rest.md. It needs the standard library only.
//
//	go run ./rest -url https://rest.example.com -ca ca.crt -token-file token -namespace shop -name corner -min-replicas 3
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
)

func main() {
	var e endpoint
	flag.StringVar(&e.url, "url", "", "The URL of the endpoint.")
	flag.StringVar(&e.tokenFile, "token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token",
		"The file with the token of the user.")
	ca := flag.String("ca", "", "The file with the certificate authority of the endpoint.")
	namespace := flag.String("namespace", "default", "The namespace of the Minimart.")
	name := flag.String("name", "", "The name of the Minimart.")
	minReplicas := flag.Int("min-replicas", 1, "The number of replicas: the smallest one with autoscaling.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := e.trust(*ca)
	if err == nil {
		err = e.scale(ctx, "/v1/minimarts.charts.samutup.com/"+*namespace+"/"+*name, *minReplicas)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Printf("Minimart %s/%s has %d replicas\n", *namespace, *name, *minReplicas)
}

// endpoint is the REST endpoint.
type endpoint struct {
	url, tokenFile string
	client         http.Client
}

// trust adds the certificate authority in a file, if there is one.
func (e *endpoint) trust(file string) error {
	if file == "" {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return fmt.Errorf("%s contains no certificate", file)
	}
	e.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return nil
}

// minimart has the fields that this program reads.
type minimart struct {
	Spec struct {
		Autoscaling struct {
			Enabled bool `json:"enabled"`
		} `json:"autoscaling"`
	} `json:"spec"`
}

// scale sets the number of replicas, and waits until the object is ready. If another writer is
// faster, it reads the object again.
func (e *endpoint) scale(ctx context.Context, path string, replicas int) error {
	for {
		content, header, err := e.do(ctx, http.MethodGet, path, nil, "")
		if err != nil {
			return err
		}
		var m minimart
		if err := json.Unmarshal(content, &m); err != nil {
			return err
		}
		spec := map[string]any{"replicaCount": replicas}
		if m.Spec.Autoscaling.Enabled {
			spec = map[string]any{"autoscaling": map[string]any{"minReplicas": replicas}}
		}
		patch, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			return err
		}
		_, header, err = e.do(ctx, http.MethodPatch, path+"?wait=5m", patch, header.Get("ETag"))
		if failed, ok := errors.AsType[*statusError](err); ok && failed.code == http.StatusPreconditionFailed {
			continue
		}
		if err == nil && header.Get("Ksctl-Ready") != "" && !strings.HasPrefix(header.Get("Ksctl-Ready"), "True ") {
			return fmt.Errorf("the change is made, and the object is not ready: %s", header.Get("Ksctl-Ready"))
		}
		return err
	}
}

// statusError is a response with an error.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.code, e.message) }

// do sends a request, and returns the body and the headers of the response.
func (e *endpoint) do(ctx context.Context, method, path string, patch []byte, etag string) ([]byte, http.Header,
	error) {
	token, err := os.ReadFile(e.tokenFile) // the kubelet renews it
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, e.url+path, bytes.NewReader(patch))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	if patch != nil {
		req.Header.Set("Content-Type", "application/merge-patch+json")
		req.Header.Set("If-Match", etag)
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var status struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(content, &status) // the message stays empty
		return nil, nil, &statusError{resp.StatusCode, status.Message}
	}
	return content, resp.Header, nil
}
