package restapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/internal/restapi/repository"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// Headers of answers, beside ETag.
const (
	// commitHeader has the commit that contains the object.
	commitHeader = "Ksctl-Commit"
	// fileHeader has the file of the object in the repository.
	fileHeader = "Ksctl-File"
	// readyHeader has the condition Ready of the object in the cluster, if the request waits.
	readyHeader = "Ksctl-Ready"
)

// Reasons of a Status that Kubernetes does not define.
const (
	preconditionFailed metav1.StatusReason = "PreconditionFailed"
	gitRefused         metav1.StatusReason = "RepositoryRefused"
	gitUnavailable     metav1.StatusReason = "RepositoryUnavailable"
)

// answer is the response to a request: of the API server, or of this endpoint.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a *answer) succeeded() bool { return a.code >= 200 && a.code < 300 }

// write sends the answer.
func (a *answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body) // fails if the client is gone
}

// jsonAnswer returns an answer with a body of JSON.
func jsonAnswer(code int, body any) (*answer, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding the response: %w", err)
	}
	return &answer{code: code, header: http.Header{"Content-Type": {"application/json"}},
		body: append(content, '\n')}, nil
}

// answerError is an answer that ends a request.
type answerError struct{ *answer }

// Error returns the code and the message of the answer.
func (e *answerError) Error() string {
	var status metav1.Status
	_ = json.Unmarshal(e.body, &status) // the message stays empty
	return fmt.Sprintf("%d %s: %s", e.code, http.StatusText(e.code), status.Message)
}

// newError returns an answer with a Status.
func newError(code int, reason metav1.StatusReason, format string, args ...any) *answerError {
	return newStatusError(code, reason, nil, format, args...)
}

// newStatusError returns an answer with a Status that has details.
func newStatusError(code int, reason metav1.StatusReason, details *metav1.StatusDetails, format string,
	args ...any) *answerError {
	a, err := jsonAnswer(code, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Details: details,
		Message: fmt.Sprintf(format, args...)})
	if err != nil { // no Status causes it
		a = &answer{code: code, header: http.Header{}}
	}
	return &answerError{a}
}

// conflictCause is the type of the cause that names the file and the reason of a conflict in the
// repository.
const conflictCause metav1.CauseType = "RepositoryConflict"

// errorAnswer returns the answer for an error of a request.
func errorAnswer(err error) *answer {
	if e, ok := errors.AsType[*answerError](err); ok {
		return e.answer
	}
	if e, ok := errors.AsType[*manifests.ConflictError](err); ok {
		return conflictAnswer(e)
	}
	if e, ok := errors.AsType[*repository.PreconditionError](err); ok {
		return newError(http.StatusPreconditionFailed, preconditionFailed, "%s", e).answer
	}
	if e, ok := errors.AsType[*repository.RefusedError](err); ok {
		return newError(http.StatusBadGateway, gitRefused, "%s", e).answer
	}
	if e, ok := errors.AsType[*repository.AttemptsError](err); ok {
		return newError(http.StatusServiceUnavailable, gitUnavailable, "%s", e).answer
	}
	if isContextError(err) {
		return newError(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
			"the request was not completed in time: read the object, and repeat the request if it is unchanged").answer
	}
	_, remote := errors.AsType[*git.Error](err)
	_, secret := errors.AsType[*gitsecret.Error](err)
	if remote || secret {
		return newError(http.StatusBadGateway, gitUnavailable, "%s", err).answer
	}
	return newError(http.StatusInternalServerError, metav1.StatusReasonInternalError, "%s", err).answer
}

// conflictAnswer returns the answer for an object that can't be read or changed in the repository.
func conflictAnswer(e *manifests.ConflictError) *answer {
	details := &metav1.StatusDetails{Name: e.Key.Name, Group: e.Key.Group, Kind: e.Key.Kind,
		Causes: []metav1.StatusCause{{Type: conflictCause, Field: e.File, Message: e.Reason}}}
	if e.NotFound {
		return newStatusError(http.StatusNotFound, metav1.StatusReasonNotFound, details, "%s", e).answer
	}
	return newStatusError(http.StatusConflict, metav1.StatusReasonConflict, details, "%s", e).answer
}
