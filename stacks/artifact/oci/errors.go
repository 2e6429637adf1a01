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

// Reason says what is wrong with an artifact or its registry, fit to stand in a
// condition.
type Reason string

// Reasons. Beside them there are those of [artifact.Reason] for content that is
// too large or not safe.
const (
	// URLInvalid is a URL that can't name a repository, or one never talked to.
	URLInvalid Reason = "URLInvalid"
	// SemVerInvalid is a range of versions that can't be read.
	SemVerInvalid Reason = "SemVerInvalid"
	// OperationFailed is a registry that can't be reached or answers nonsense.
	OperationFailed Reason = "OCIArtifactPullFailed"
	// AuthenticationRequired is a registry that asks who is there.
	AuthenticationRequired Reason = "AuthenticationRequired"
	// AuthenticationFailed is a registry that does not take the credentials, or
	// takes them and refuses.
	AuthenticationFailed Reason = "AuthenticationFailed"
	// ArtifactNotFound is a repository, tag or digest that the registry does not have.
	ArtifactNotFound Reason = "ArtifactNotFound"
	// TagNotFound is a range of versions that no tag is in.
	TagNotFound Reason = "TagNotFound"
	// LayerNotFound is an artifact without a layer of the type that was asked for.
	LayerNotFound Reason = "LayerNotFound"
	// Unsupported is an artifact that this package can't read.
	Unsupported Reason = "UnsupportedArtifact"
)

// Error is what every function of this package fails with.
type Error struct {
	// Reason is what is wrong; decide by it.
	Reason Reason
	// Message says what was found, what was expected and what to do.
	Message string
	// Err is the cause, if there is one that is fit to be shown.
	Err error
}

// Error says what and why.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %.500s", e.Message, e.Err)
	}
	return e.Message
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true when asking again for the same thing can't help. Whatever
// a push or a change of the registry may mend is not.
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

// NotFound is true for an error that means: the registry has no such thing.
func NotFound(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Reason == ArtifactNotFound
}

func fail(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

func failBy(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: err}
}

// judge tells why asking for something failed. What a registry says beside its
// codes is left out: it knows the credentials.
func (r *Repository) judge(ctx context.Context, err error, what string) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if ctx.Err() != nil {
		return failBy(OperationFailed, context.Cause(ctx), "getting %s took too long or was interrupted", what)
	}
	if inner, ok := errors.AsType[*artifact.Error](err); ok {
		if inner.Reason == artifact.RefusedAddress {
			return failBy(URLInvalid, inner, "%s is not talked to", what)
		}
		return failBy(Reason(inner.Reason), inner, "%s can't be taken", what)
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return r.answered(answer, what)
	}
	if errors.Is(err, errPlainHTTP) {
		return failBy(OperationFailed, artifact.WithoutURL(err), "%s can't be read over https, and over plain http only with insecure: true", what)
	}
	return failBy(OperationFailed, artifact.WithoutURL(err), "%s can't be read from its registry", what)
}

func (r *Repository) answered(e *transport.Error, what string) *Error {
	codes := make([]string, 0, len(e.Errors))
	for _, d := range e.Errors {
		codes = append(codes, fmt.Sprintf("%.40q", string(d.Code)))
	}
	said := fmt.Sprintf("%d %s", e.StatusCode, http.StatusText(e.StatusCode))
	if len(codes) > 0 {
		said += " " + strings.Join(codes[:min(3, len(codes))], ", ")
	}
	switch {
	case e.StatusCode == http.StatusNotFound || e.StatusCode == http.StatusGone:
		return fail(ArtifactNotFound, "the registry has no %s (%s): push it, or correct url and ref", what, said)
	case e.StatusCode != http.StatusUnauthorized && e.StatusCode != http.StatusForbidden:
		return fail(OperationFailed, "the registry answered %s for %s", said, what)
	case r.anonymous():
		return fail(AuthenticationRequired, "the registry asks for credentials for %s (%s): it is private, or there is none of that name", what, said)
	}
	return fail(AuthenticationFailed, "the registry does not let these credentials read %s (%s)", what, said)
}
