package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TooManyRequests responds like an overloaded API server, with a Retry-After header.
func TooManyRequests(after time.Duration) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
		respond(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests,
			"too many requests, please try again later")
	}
}

// Conflict responds as if another writer had updated the object.
func Conflict(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	respond(w, http.StatusConflict, metav1.StatusReasonConflict,
		"the object has been modified; please apply your changes to the latest version")
}

// InternalError responds like an API server whose storage fails.
func InternalError(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	respond(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: leader changed")
}

// BadGateway responds like a load balancer, without a Status object.
func BadGateway(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = w.Write([]byte("<html><body><h1>502 Bad Gateway</h1></body></html>"))
}

// Expired responds as if the requested resource version were compacted: to a watch with an
// ERROR event, to other requests with the status code.
func Expired(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	status := statusOf(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
	if r.URL.Query().Get("watch") == "" {
		write(w, http.StatusGone, status)
		return
	}
	write(w, http.StatusOK, map[string]any{"type": "ERROR", "object": status})
}

// Drop closes the connection before the API server receives the request.
func Drop(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// LoseResponse lets the API server handle the request, and closes the connection before the
// client receives the response.
func LoseResponse(_ http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// Hang never responds; the client has to time out.
func Hang(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Delay forwards the request after a delay.
func Delay(d time.Duration) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-time.After(d):
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// Late forwards the request after a delay, also if the client is gone by then, as a load balancer
// may.
func Late(d time.Duration) Fault {
	return func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		late := r.Clone(context.WithoutCancel(r.Context()))
		late.Body = io.NopCloser(bytes.NewReader(body))
		<-time.After(d)
		next.ServeHTTP(httptest.NewRecorder(), late)
		panic(http.ErrAbortHandler)
	}
}

func statusOf(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: message}
}

func respond(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	write(w, int(code), statusOf(code, reason, message))
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
