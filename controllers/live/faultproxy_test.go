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

var errRefused = errors.New("the wire is broken")

// wire is the network between an index and the API server, for breaking it.
type wire struct {
	mu      sync.Mutex
	next    http.RoundTripper
	watches map[*tap]bool
	refuse  func(*http.Request) bool
	respond func(*http.Request) *http.Response
	seen    []*http.Request
}

// through puts a wire between a client and the API server.
func through(cfg *rest.Config) (*rest.Config, *wire) {
	w := &wire{watches: map[*tap]bool{}}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.next = next
		return w
	})
	return cfg, w
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }

// isGet is true for requests of one object.
func isGet(r *http.Request) bool { return r.URL.Query().Get("labelSelector") == "" }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	refuse, respond := w.refuse, w.respond
	w.seen = append(w.seen, r)
	w.mu.Unlock()
	if refuse != nil && refuse(r) {
		return nil, errRefused
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
	t := newTap(resp.Body)
	w.mu.Lock()
	w.watches[t] = true
	w.mu.Unlock()
	resp.Body = t
	return resp, nil
}

// count of the requests so far that match.
func (w *wire) count(match func(*http.Request) bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.seen {
		if match(r) {
			n++
		}
	}
	return n
}

// open is the number of watches that were begun and not cut.
func (w *wire) open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches)
}

func (w *wire) setRefuse(f func(*http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = f
}

func (w *wire) setRespond(f func(*http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.respond = f
}

// expired is what the API server answers when it no longer has the history.
func expired(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusGone,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(strings.NewReader(expiredStatus)),
		Request:    r,
	}
}

const expiredStatus = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"The resourceVersion is too old","reason":"Expired","code":410}`

// cut breaks the watches off, in the middle of an event if half is set.
func (w *wire) cut(half bool) {
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

// inject puts an event into the watches.
func (w *wire) inject(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for t := range w.watches {
		_ = t.write([]byte(event + "\n"))
	}
}

// tap is the body of a watch, into which events can be put between others.
type tap struct {
	io.ReadCloser // of the pipe
	body          io.Closer
	mu            sync.Mutex
	pipe          *io.PipeWriter
}

func newTap(body io.ReadCloser) *tap {
	r, pw := io.Pipe()
	t := &tap{ReadCloser: r, body: body, pipe: pw}
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

func (t *tap) write(b []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.pipe.Write(b)
	return err
}

func (t *tap) end(err error) {
	_ = t.pipe.CloseWithError(err)
	_ = t.body.Close()
}

func (t *tap) Close() error {
	t.end(io.EOF)
	return t.ReadCloser.Close()
}
