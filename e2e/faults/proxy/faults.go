package proxy

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TooManyRequests answers as an overloaded API server does.
func TooManyRequests(after time.Duration) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Retry-After", strconv.Itoa(int(after.Seconds())))
		answer(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests, please try again later")
	}
}

// Conflict answers as if another writer had been faster.
func Conflict(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	answer(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified; please apply your changes to the latest version")
}

// InternalError answers as an API server does whose storage fails.
func InternalError(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	answer(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: leader changed")
}

// BadGateway answers as a load balancer does: it is no Status.
func BadGateway(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = w.Write([]byte("<html><body><h1>502 Bad Gateway</h1></body></html>"))
}

// Expired answers as if the history that a request asks for were gone: a watch
// by an event in it, anything else by the status.
func Expired(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	status := statusOf(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
	if r.URL.Query().Get("watch") == "" {
		write(w, http.StatusGone, status)
		return
	}
	write(w, http.StatusOK, map[string]any{"type": "ERROR", "object": status})
}

// Drop breaks the connection off before the API server has seen the request.
func Drop(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// LoseAnswer lets the API server do what is asked, and breaks the connection
// off before the client learns of it.
func LoseAnswer(_ http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// Swallow takes the request and never answers; the client has to give up.
func Swallow(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// Delay sends the request on after some time.
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

func statusOf(code int32, reason metav1.StatusReason, message string) metav1.Status {
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: code, Reason: reason, Message: message}
}

func answer(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	write(w, int(code), statusOf(code, reason, message))
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
