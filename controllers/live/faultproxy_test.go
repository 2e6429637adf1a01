package live_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

var errInjected = errors.New("injected fault: the connection is broken")

// faultProxy is a transport between an index and the API server that injects faults.
type faultProxy struct {
	mu       sync.Mutex
	next     http.RoundTripper
	watches  map[*watchBody]bool
	fail     func(*http.Request) bool
	respond  func(*http.Request) *http.Response
	requests []*http.Request
}

// withFaultProxy returns a copy of cfg with a faultProxy as its transport.
func withFaultProxy(cfg *rest.Config) (*rest.Config, *faultProxy) {
	w := &faultProxy{watches: map[*watchBody]bool{}}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.next = next
		return w
	})
	return cfg, w
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// isGet reports whether a request is for one object.
func isGet(r *http.Request) bool { return r.URL.Query().Get("labelSelector") == "" }

func (w *faultProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	refuse, respond := w.fail, w.respond
	w.requests = append(w.requests, r)
	w.mu.Unlock()
	if refuse != nil && refuse(r) {
		return nil, errInjected
	}
	if respond != nil {
		if resp := respond(r); resp != nil {
			return resp, nil
		}
	}
	resp, err := w.next.RoundTrip(r)
	if err != nil || !isWatch(r) || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	t := newWatchBody(resp.Body)
	w.mu.Lock()
	w.watches[t] = true
	w.mu.Unlock()
	resp.Body = t
	return resp, nil
}

// count returns the number of requests so far that match.
func (w *faultProxy) count(match func(*http.Request) bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.requests {
		if match(r) {
			n++
		}
	}
	return n
}

// openWatches returns the number of watches that were started and not cut.
func (w *faultProxy) openWatches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches)
}

func (w *faultProxy) setFailure(f func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = f
}

func (w *faultProxy) setResponse(f func(*http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.respond = f
}

// expired returns the response of an API server that no longer has the history.
func expired(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusGone,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(expiredStatus)),
		Request:    r,
	}
}

const expiredStatus = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The resourceVersion is too old","reason":"Expired","code":410}`

// cutWatches cuts the watches, in the middle of an event if half is set.
func (w *faultProxy) cutWatches(half bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.watches {
		if half {
			_ = t.write([]byte(`{"type":"MODIFIED","object":{"metadata":`))
		}
		t.end(io.ErrUnexpectedEOF)
		delete(w.watches, t)
	}
}

// inject writes an event into all open watches.
func (w *faultProxy) inject(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.watches {
		_ = t.write([]byte(event + "\n"))
	}
}

// watchBody is the response body of a watch. Other goroutines can write events between its events.
type watchBody struct {
	io.ReadCloser // the read end of the pipe
	body          io.Closer
	mu            sync.Mutex
	pipe          *io.PipeWriter
}

func newWatchBody(body io.ReadCloser) *watchBody {
	r, pw := io.Pipe()
	t := &watchBody{ReadCloser: r, body: body, pipe: pw}
	go func() {
		// One event is one line.
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadBytes('\n')
			if err == nil {
				err = t.write(line)
			}
			if err != nil {
				t.end(err)
				return
			}
		}
	}()
	return t
}

func (t *watchBody) write(b []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.pipe.Write(b)
	return err
}

func (t *watchBody) end(err error) {
	_ = t.pipe.CloseWithError(err)
	_ = t.body.Close()
}

func (t *watchBody) Close() error {
	t.end(io.EOF)
	return t.ReadCloser.Close()
}
