package manager

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// slowBody is a response body that returns each part an hour after it was read.
type slowBody struct {
	ctx   context.Context
	parts []string
}

func (s *slowBody) Read(p []byte) (int, error) {
	if len(s.parts) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.parts[0])
	s.parts = s.parts[1:]
	select {
	case <-time.After(time.Hour):
		return n, nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (s *slowBody) Close() error { return nil }

func TestRequestWithoutResponseTimesOut(t *testing.T) {
	// synctest's fake clock: on a busy machine, responses in real time arrive late.
	synctest.Test(t, func(t *testing.T) {
		cfg := &rest.Config{Host: "http://server.example",
			Transport: roundTripperFunc(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/silent" {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				// A watch: the headers arrive in time, and the body stays open longer than the
				// timeout.
				time.Sleep(9 * time.Second)
				return &http.Response{StatusCode: http.StatusOK, Request: r,
					Body: &slowBody{r.Context(), []string{"begin ", "end"}}}, nil
			})}
		addResponseTimeout(cfg, 10*time.Second)
		client, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		get := func(ctx context.Context, path string) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(req)
			if err != nil {
				return "", err
			}
			body, err := io.ReadAll(res.Body)
			return string(body), errors.Join(err, res.Body.Close())
		}
		var timeoutErr *ResponseTimeoutError
		began := time.Now()
		if _, err := get(t.Context(), "/silent"); !errors.As(err, &timeoutErr) || time.Since(began) != 10*time.Second {
			t.Errorf("request without response: got %v after %s, want a timeout after 10s", err, time.Since(began))
		}
		if body, err := get(t.Context(), "/watch"); err != nil || body != "begin end" {
			t.Errorf("slow response body: got %q, %v", body, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := get(ctx, "/silent"); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled request: got %v, want context.Canceled", err)
		}
	})
}
