package chart

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// Reason says why a chart can't be had.
type Reason string

// Reasons. They are CamelCase so that they can stand in a condition. An archive that
// can't be taken has the reason of package artifact.
const (
	// NotFound is a chart or a version that the repository does not have.
	NotFound Reason = "ChartNotFound"
	// Unreachable is a repository that can't be reached or does not answer whole.
	Unreachable Reason = "ChartRepositoryUnreachable"
	// AccessDenied is a repository that refuses access.
	AccessDenied Reason = "ChartAccessDenied"
	// RepositoryInvalid is an index or a manifest that can't be read or is too large.
	RepositoryInvalid Reason = "ChartRepositoryInvalid"
	// DigestMismatch is a chart that is not what its digest says.
	DigestMismatch Reason = "ChartDigestMismatch"
	// Unverified is a chart that is not signed by a key that is trusted.
	Unverified Reason = "ChartUnverified"
	// SecretInvalid is a Secret that does not hold what is needed.
	SecretInvalid Reason = "ChartSecretInvalid"
)

// Error is what every function of this package fails with.
type Error struct {
	// Reason is what is wrong; decide by it.
	Reason Reason
	// Ref is the chart, where one is to blame.
	Ref stacks.ChartRef
	// Message says what was found and what was expected.
	Message string
	// Err is the cause, if there is one.
	Err error

	// again is true for what another try may mend.
	again bool
}

// Error says what, where and why.
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

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true when trying the same again can't help: it takes another version,
// digest, key or limit.
func (e *Error) Terminal() bool { return !e.again }

func fail(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

// retry is fail for what another try may mend.
func retry(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: artifact.WithoutURL(err), again: true}
}

// about says which chart an error is about. It is copied: those who waited for the
// same chart have components of their own.
func about(ref stacks.ChartRef, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = retry(Unreachable, err, "fetching the chart")
	}
	own := *e
	own.Ref = ref
	return &own
}

// unreached is why a request got no answer.
func unreached(ctx context.Context, err error, what string) *Error {
	if ctx.Err() != nil {
		return retry(Unreachable, context.Cause(ctx), "interrupted while reading %s", what)
	}
	if refused, ok := artifact.Refused(err); ok {
		return &Error{Reason: Reason(refused.Reason), Message: "reading " + what, Err: refused}
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return retry(Unreachable, err, "%s can't be read", what)
}

// archiveError is why an archive could not be had.
func archiveError(err error) *Error {
	e, ok := errors.AsType[*artifact.Error](err)
	if !ok {
		return retry(Unreachable, err, "the archive can't be had")
	}
	switch e.Reason {
	case artifact.Unreachable:
		return retry(Unreachable, e, "the archive can't be downloaded")
	case artifact.NotFound:
		return retry(Unreachable, e, "the repository names an archive and does not have it")
	case artifact.AccessDenied:
		return retry(AccessDenied, e, "the archive is refused")
	case artifact.DigestMismatch:
		return retry(DigestMismatch, e, "the archive is not what the repository says")
	case artifact.Storage:
		return retry(Reason(e.Reason), e, "the archive can't be kept")
	default:
		return &Error{Reason: Reason(e.Reason), Message: "the archive is refused", Err: e}
	}
}
