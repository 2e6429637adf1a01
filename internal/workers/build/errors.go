package build

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// terminalError is an error that another attempt would have, too.
type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }

func (e *terminalError) Unwrap() error { return e.err }

// IsTerminal reports whether another attempt would fail in the same way.
func IsTerminal(err error) bool {
	_, terminal := errors.AsType[*terminalError](err)
	return terminal
}

// Terminal marks an error as one that another attempt would have, too.
func Terminal(err error) error { return &terminalError{err} }

func terminalf(format string, args ...any) error {
	return &terminalError{fmt.Errorf(format, args...)}
}

// status returns the HTTP status of an error of a registry; 0 if it did not respond.
func status(err error) int {
	if response, ok := errors.AsType[*transport.Error](err); ok {
		return response.StatusCode
	}
	return 0
}

// registryPath is the path that every registry serves.
const registryPath = "/v2/"

// isNotFound reports whether a registry does not have an object. Other servers respond with that
// status, too, but not only to requests for objects.
func isNotFound(err error) bool {
	response, ok := errors.AsType[*transport.Error](err)
	return ok && response.StatusCode == http.StatusNotFound &&
		(response.Request == nil || response.Request.URL.Path != registryPath)
}

// registryError describes the error of requests for an object of a registry. Refused credentials
// are not terminal: they can be corrected in the registry or in their Secret.
func registryError(action string, object fmt.Stringer, err error) error {
	err = fmt.Errorf("%s %s: %w", action, object, err)
	switch status(err) {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: check the credentials of the registry", err)
	case http.StatusBadRequest:
		if !isRetryable(err) {
			return &terminalError{err}
		}
	}
	return err
}

// collectedCodes are the errors of a registry that deleted content during a push, because no
// manifest referred to it yet.
var collectedCodes = []transport.ErrorCode{transport.BlobUnknownErrorCode, transport.BlobUploadUnknownErrorCode,
	transport.BlobUploadInvalidErrorCode, transport.ManifestBlobUnknownErrorCode, transport.ManifestUnknownErrorCode}

// isRetryable reports whether a push may succeed if all of it is done again.
func isRetryable(err error) bool {
	response, ok := errors.AsType[*transport.Error](err)
	if !ok || IsTerminal(err) {
		return false
	}
	if response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError {
		return true
	}
	return slices.ContainsFunc(response.Errors, func(d transport.Diagnostic) bool {
		return slices.Contains(collectedCodes, d.Code)
	})
}

// isUnsupported reports whether a registry does not implement a request.
func isUnsupported(err error) bool {
	response, ok := errors.AsType[*transport.Error](err)
	return ok && (response.StatusCode == http.StatusMethodNotAllowed ||
		slices.ContainsFunc(response.Errors, func(d transport.Diagnostic) bool {
			return d.Code == transport.UnsupportedErrorCode
		}))
}
