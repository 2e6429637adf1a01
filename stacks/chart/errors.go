package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// Reason is a category of fetch errors.
type Reason string

// Reasons are CamelCase, so that conditions can use them. The error for an archive that is refused
// has a reason of package artifact.
const (
	// NotFound means that the repository does not have the chart or the version.
	NotFound Reason = "ChartNotFound"
	// Unreachable means that the repository can't be reached or its response is incomplete.
	Unreachable Reason = "ChartRepositoryUnreachable"
	// AccessDenied means that the repository denies access.
	AccessDenied Reason = "ChartAccessDenied"
	// RepositoryInvalid means that an index or a manifest can't be parsed or is too large, or that
	// the address or the settings of the repository are invalid.
	RepositoryInvalid Reason = "ChartRepositoryInvalid"
	// DigestMismatch means that the chart does not have the expected digest.
	DigestMismatch Reason = "ChartDigestMismatch"
	// Unverified means that no trusted signer signed the chart.
	Unverified Reason = "ChartUnverified"
	// SecretInvalid means that a Secret lacks a required key, or that a value is malformed.
	SecretInvalid Reason = "ChartSecretInvalid"
)

// Error is the error type of this package.
type Error struct {
	// Reason is the category, for decisions.
	Reason Reason
	// Ref is the chart, if the error is about one.
	Ref stacks.ChartRef
	// Message states the problem, and what to do.
	Message string
	// Err is the cause, or nil.
	Err error

	// transient is true if a retry may succeed.
	transient bool
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Ref.Component != "" {
		fmt.Fprintf(&b, "component %q: ", e.Ref.Component)
	}
	if e.Ref.Name != "" {
		fmt.Fprintf(&b, "%s: ", e.Ref)
	}
	b.WriteString(e.Message)
	if e.Err != nil {
		fmt.Fprintf(&b, ": %s", e.Err)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true if a retry can't succeed without a change of the version, digest, key or limit.
func (e *Error) Terminal() bool { return !e.transient }

func terminalError(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// transientError returns an *Error for a problem that a retry may solve.
func transientError(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: artifact.WithoutURL(err), transient: true}
}

// withRef returns a copy of an error with its Ref set. It copies, because callers that share a
// flight share the error and have different components.
func withRef(ref stacks.ChartRef, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = transientError(Unreachable, err, "fetching the chart")
	}
	own := *e
	own.Ref = ref
	return &own
}

// requestError returns the *Error for a failed HTTP request. subject names the requested content.
func requestError(ctx context.Context, err error, subject string) *Error {
	if ctx.Err() != nil {
		return transientError(Unreachable, context.Cause(ctx), "interrupted while reading %s", subject)
	}
	if refused, ok := artifact.AsRefusedAddress(err); ok {
		return &Error{Reason: Reason(refused.Reason), Message: "reading " + subject, Err: refused}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return transientError(Unreachable, err, "%s can't be read", subject)
}

// archiveError returns the *Error for an archive that can't be fetched.
func archiveError(err error) *Error {
	e, ok := errors.AsType[*artifact.Error](err)
	if !ok {
		return transientError(Unreachable, err, "the archive can't be fetched")
	}
	switch e.Reason {
	case artifact.Unreachable:
		return transientError(Unreachable, e, "the archive can't be downloaded")
	case artifact.NotFound:
		return transientError(Unreachable, e, "the repository lists the archive but does not have it")
	case artifact.AccessDenied:
		return transientError(AccessDenied, e, "access to the archive is denied")
	case artifact.DigestMismatch:
		return transientError(DigestMismatch, e, "the archive does not have the digest that the repository gives")
	case artifact.Storage:
		return transientError(Reason(e.Reason), e, "the archive can't be stored")
	default:
		return &Error{Reason: Reason(e.Reason), Message: "the archive is refused", Err: e}
	}
}
