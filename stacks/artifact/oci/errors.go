package oci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Reason is the cause of an Error, and can be the reason of a condition.
type Reason = artifact.Reason

// Reasons. For content that is too large or not safe, an Error has one of the reasons of
// package artifact instead.
const (
	// URLInvalid: the URL can't name a repository, or has an address that is always refused.
	URLInvalid Reason = "URLInvalid"
	// SemVerInvalid: the version range can't be parsed.
	SemVerInvalid Reason = "SemVerInvalid"
	// OperationFailed: the registry can't be reached, or its response is invalid.
	OperationFailed Reason = "OCIArtifactPullFailed"
	// AuthenticationRequired: the registry requires credentials.
	AuthenticationRequired Reason = "AuthenticationRequired"
	// AuthenticationFailed: the registry rejects the credentials, or accepts them and
	// denies access.
	AuthenticationFailed Reason = "AuthenticationFailed"
	// ArtifactNotFound: the registry does not have the repository, tag or digest.
	ArtifactNotFound Reason = "ArtifactNotFound"
	// TagNotFound: no tag is in the version range.
	TagNotFound Reason = "TagNotFound"
	// LayerNotFound: the artifact has no layer of the requested media type.
	LayerNotFound Reason = "LayerNotFound"
	// Unsupported: this package can't read the artifact.
	Unsupported Reason = "UnsupportedArtifact"
)

// Error is the error type of every function of this package.
type Error struct {
	// Reason is the cause. Callers decide by it, not by the message.
	Reason Reason
	// Message describes what was found, what was expected and what to do.
	Message string
	// Err is the wrapped error, if there is one that can be shown to users.
	Err error
}

// Error returns the message and the wrapped error.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %.500s", e.Message, e.Err)
	}
	return e.Message
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true if a retry of the same operation can't succeed. It is false if a push
// or a change of the registry can resolve the error.
func (e *Error) Terminal() bool {
	switch e.Reason {
	case URLInvalid, SemVerInvalid, Unsupported, LayerNotFound:
		return true
	}
	if inner, ok := errors.AsType[*artifact.Error](e.Err); ok {
		return inner.Terminal()
	}
	return false
}

// IsNotFound is true if the error means that the registry does not have the repository, tag
// or digest.
func IsNotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Reason == ArtifactNotFound
}

func newError(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

func wrapError(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: err}
}

// classifyError returns the *Error of a failed request. It omits the messages of the registry
// and keeps only its error codes, because the registry has seen the credentials.
func (r *Repository) classifyError(ctx context.Context, err error, what string) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return wrapError(OperationFailed, context.Cause(ctx), "fetching %s timed out or was interrupted", what)
	}
	if inner, ok := errors.AsType[*artifact.Error](err); ok {
		if inner.Reason == artifact.RefusedAddress {
			return wrapError(URLInvalid, inner, "%s has an address that is never connected to", what)
		}
		return wrapError(inner.Reason, inner, "%s can't be used", what)
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return r.statusError(answer, what)
	}
	if errors.Is(err, errPlainHTTP) {
		return wrapError(OperationFailed, artifact.WithoutURL(err),
			"%s can't be read over https; set insecure: true to allow plain http", what)
	}
	return wrapError(OperationFailed, artifact.WithoutURL(err), "%s can't be read from its registry", what)
}

func (r *Repository) statusError(e *transport.Error, what string) *Error {
	codes := make([]string, 0, len(e.Errors))
	for _, d := range e.Errors {
		codes = append(codes, fmt.Sprintf("%.40q", string(d.Code)))
	}
	response := fmt.Sprintf("%d %s", e.StatusCode, http.StatusText(e.StatusCode))
	if len(codes) > 0 {
		response += " " + strings.Join(codes[:min(3, len(codes))], ", ")
	}
	switch {
	case e.StatusCode == http.StatusNotFound || e.StatusCode == http.StatusGone:
		return newError(ArtifactNotFound, "the registry does not have %s (%s): push it, or correct url and ref", what,
			response)
	case e.StatusCode != http.StatusUnauthorized && e.StatusCode != http.StatusForbidden:
		return newError(OperationFailed, "the registry responded with %s to the request for %s", response, what)
	case r.anonymous():
		return newError(AuthenticationRequired,
			"the registry requires credentials for %s (%s): the repository is private or does not exist", what,
			response)
	}
	return newError(AuthenticationFailed, "the registry does not allow these credentials to read %s (%s)", what,
		response)
}
