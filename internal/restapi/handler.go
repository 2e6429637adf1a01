package restapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/ksctl/gitops/internal/restapi/manifests"
)

const (
	// requestTimeout limits a request without the time that it waits for the object.
	requestTimeout = 2 * time.Minute
	// maxConcurrent is how many requests are handled concurrently, with those that wait.
	maxConcurrent = 512
	// maxDecoding is how many bodies are decoded concurrently.
	maxDecoding = 8
)

// backend reads and changes objects on behalf of callers.
type backend interface {
	// read returns the object.
	read(ctx context.Context, c *call) (*answer, error)
	// change does what a PUT, PATCH or DELETE requests.
	change(ctx context.Context, c *call) (*outcome, error)
}

// outcome is a change that was made.
type outcome struct {
	// answer is the response, unless the caller waits in vain.
	answer *answer
	// version is the API version of the object.
	version string
	// expected are fields that the object has once the change has reached the cluster, nil for
	// those that it must not have; deleted means that there will be no object.
	expected any
	deleted  bool
}

// handler handles requests.
type handler struct {
	server    *apiServer
	resources *resources
	backend   backend
	clock     clock.Clock
	log       logr.Logger
	observe   func(method string, code int, took time.Duration)
	// slots bounds the concurrent requests, decoding the bodies that are being decoded.
	slots, decoding chan struct{}
	// changes is done when changes must end; stopping, when waits must end.
	changes, stopping context.Context
	running           sync.WaitGroup
}

// methods are the methods of an object.
const methods = "GET, PUT, PATCH, DELETE"

// routes returns the handler of all paths.
func (h *handler) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/{resource}/{namespace}/{name}", h.serveWith(h.object))
	mux.HandleFunc("/openapi/v3", h.serveWith(h.openAPI))
	mux.HandleFunc("/", h.serveWith(func(context.Context, http.ResponseWriter, *http.Request) (*answer,
		time.Duration, error) {
		return nil, 0, newError(http.StatusNotFound, metav1.StatusReasonNotFound,
			"unknown path: objects are at /v1/{plural}.{group}/{namespace}/{name}, and /openapi/v3 describes them")
	}))
	return mux
}

// serveWith returns a handler that writes the answer of a function. The function returns the time
// that it waited for an object, too.
func (h *handler) serveWith(f func(context.Context, http.ResponseWriter, *http.Request) (*answer, time.Duration,
	error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.running.Add(1)
		defer h.running.Done()
		start := h.clock.Now()
		a, waited := h.answer(w, r, f)
		if a.code == http.StatusUnauthorized {
			a.header.Set("WWW-Authenticate", "Bearer")
		}
		a.write(w)
		h.observe(methodLabel(r.Method), a.code, h.clock.Since(start)-waited)
	}
}

// answer returns the answer of a function, which is called if there is a slot.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, f func(context.Context, http.ResponseWriter,
	*http.Request) (*answer, time.Duration, error)) (a *answer, waited time.Duration) {
	select {
	case h.slots <- struct{}{}:
	default:
		a = newError(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"there are %d concurrent requests: repeat the request later", maxConcurrent).answer
		a.header.Set("Retry-After", "1")
		return a, 0
	}
	defer func() { <-h.slots }()
	defer func() {
		if v := recover(); v != nil {
			h.log.Error(fmt.Errorf("panic: %v", v), "a request panicked", "method", methodLabel(r.Method), "path",
				r.URL.Path, "stack", string(debug.Stack()))
			a = newError(http.StatusInternalServerError, metav1.StatusReasonInternalError,
				"the endpoint failed: read the object before you repeat the request; the log of the controller has "+
					"the reason").answer
		}
	}()
	a, waited, err := f(r.Context(), w, r)
	if err != nil {
		a = errorAnswer(err)
		h.logError(r, err, a.code)
	}
	return a, waited
}

// logError logs failures of servers, and what the answer of a request does not have. Errors of Git
// servers mask credentials.
func (h *handler) logError(r *http.Request, err error, code int) {
	log := h.log.WithValues("method", methodLabel(r.Method), "path", r.URL.Path, "code", code)
	e, isConflict := errors.AsType[*manifests.ConflictError](err)
	switch {
	case isConflict && e.Err != nil:
		log.Info("a kustomization cannot be built", "file", e.File, "reason", e.Err.Error())
	case r.Context().Err() != nil: // the client is gone
		log.V(1).Info("the request was canceled", "reason", err.Error())
	case code >= http.StatusInternalServerError:
		log.Error(err, "a request failed")
	}
}

// methodLabel returns a method for metrics: callers may send any.
func methodLabel(method string) string {
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return method
	}
	return "other"
}

// object handles the requests for objects.
func (h *handler) object(ctx context.Context, w http.ResponseWriter, r *http.Request) (*answer, time.Duration, error) {
	if methodLabel(r.Method) == "other" {
		e := newError(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"%s is not supported: use one of %s", r.Method, methods)
		e.header.Set("Allow", methods)
		return nil, 0, e
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, err := h.parse(ctx, w, r)
	if err != nil {
		return nil, 0, err
	}
	if c.method == http.MethodGet {
		a, err := h.backend.read(ctx, c)
		return a, 0, err
	}
	done, err := h.change(c)
	if err != nil {
		return nil, 0, err
	}
	if c.wait == 0 || !done.answer.succeeded() {
		return done.answer, 0, nil
	}
	c.body = nil // it may need much memory
	start := h.clock.Now()
	a := h.await(r.Context(), c, done)
	return a, h.clock.Since(start), nil
}

// change makes a change. It does not end when the client goes away: a push that is canceled may or
// may not have been made.
func (h *handler) change(c *call) (*outcome, error) {
	ctx, cancel := context.WithTimeout(h.changes, requestTimeout)
	defer cancel()
	done, err := h.backend.change(ctx, c)
	log := h.log.WithValues("method", c.method, "resource", c.GroupResource.String(), "namespace", c.namespace,
		"name", c.name)
	if err != nil {
		log.V(1).Info("refused a change", "code", errorAnswer(err).code)
		return nil, err
	}
	log.Info("changed an object", "code", done.answer.code, "commit", done.answer.header.Get(commitHeader))
	return done, nil
}
