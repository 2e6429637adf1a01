package scriptsapi

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Codes of Cloudflare's errors.
const (
	codeNoRoute          = 7003
	codeMethod           = 7001
	codeUnauthorized     = 9109
	codeAuthentication   = 10000
	codeScriptNotFound   = 10007
	codeInternal         = 10013
	codeScriptName       = 10016
	codeInvalid          = 10021
	codeTooLarge         = 10027
	codeTooManyScripts   = 10037
	codeBindingTooLarge  = 10054
	codeTooManyBindings  = 10055
	codeBindingNotFound  = 10056
	codeServiceNotFound  = 10090
	codeAccountNotFound  = 7003
	codeVersionNotFound  = 10007
	codeValidToken       = 10000
	codeDeployed         = 10000
	codeSubdomainMissing = codeInvalid
)

// apiError is an answer that is no success.
type apiError struct {
	status, code int
	message      string
	// cause is logged, and not part of the answer.
	cause error
}

func (e *apiError) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %v", e.message, e.cause)
	}
	return e.message
}

func (e *apiError) Unwrap() error { return e.cause }

func failf(status, code int, format string, args ...any) *apiError {
	return &apiError{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

// invalidf is an answer to a request that can't succeed as it is.
func invalidf(format string, args ...any) *apiError {
	return failf(http.StatusBadRequest, codeInvalid, format, args...)
}

// note is an error or a message of an answer.
type note struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// envelope is the body of an answer.
type envelope struct {
	Success    bool        `json:"success"`
	Errors     []note      `json:"errors"`
	Messages   []note      `json:"messages"`
	Result     any         `json:"result"`
	ResultInfo *resultInfo `json:"result_info,omitempty"`
}

// resultInfo is the page of a list. Lists have one page.
type resultInfo struct {
	Page       int `json:"page"`
	PerPage    int `json:"per_page"`
	Count      int `json:"count"`
	TotalCount int `json:"total_count"`
}

// answer is a result with messages.
type answer struct {
	result   any
	messages []note
}

// list is the result of a list.
type list []any

func writeResult(w http.ResponseWriter, result any) {
	e := envelope{Success: true, Errors: []note{}, Messages: []note{}, Result: result}
	if a, ok := result.(answer); ok {
		e.Result = a.result
		e.Messages = append(e.Messages, a.messages...)
	}
	if l, ok := e.Result.(list); ok {
		e.ResultInfo = &resultInfo{Page: 1, PerPage: max(len(l), 1), Count: len(l), TotalCount: len(l)}
	}
	write(w, http.StatusOK, e)
}

func writeError(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	write(w, e.status, envelope{Errors: []note{{e.code, e.message}}, Messages: []note{}})
}

func write(w http.ResponseWriter, status int, e envelope) {
	body, err := json.Marshal(e)
	if err != nil {
		http.Error(w, "the answer can't be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
