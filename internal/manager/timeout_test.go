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

// slowly is an answer of which a part comes at once, and the rest after a while.
type slowly struct {
	ctx   context.Context
	parts []string
}

func (s *slowly) Read(p []byte) (int, error) {
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

func (s *slowly) Close() error { return nil }

func TestARequestWithoutAnAnswerIsGivenUp(t *testing.T) {
	// A bubble's time: on a busy machine no answer comes as soon as it could.
	synctest.Test(t, func(t *testing.T) {
		cfg := &rest.Config{Host: "http://server.example", Transport: tripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/silent" {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			// A watch: it begins in time, and goes on for as long as it likes.
			time.Sleep(9 * time.Second)
			return &http.Response{StatusCode: http.StatusOK, Request: r, Body: &slowly{r.Context(), []string{"begin ", "end"}}}, nil
		})}
		bound(cfg, 10*time.Second)
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
		var late *NoAnswerError
		began := time.Now()
		if _, err := get(t.Context(), "/silent"); !errors.As(err, &late) || time.Since(began) != 10*time.Second {
			t.Errorf("no answer: %v after %s", err, time.Since(began))
		}
		if body, err := get(t.Context(), "/watch"); err != nil || body != "begin end" {
			t.Errorf("an answer that takes its time: %q, %v", body, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := get(ctx, "/silent"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that gives up: %v", err)
		}
	})
}
