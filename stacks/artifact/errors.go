package artifact

import (
	"errors"
	"fmt"
	"net/url"
)

// Reason is the cause of an Error.
type Reason string

// Reasons. They are CamelCase so that a condition can use them as its reason.
const (
	// TooLarge: a download, a tree or a file exceeds its limit in bytes.
	TooLarge Reason = "TooLarge"
	// TooManyFiles: a tree has more files and directories than the limit.
	TooManyFiles Reason = "TooManyFiles"
	// TooDeep: a path has more elements than the limit.
	TooDeep Reason = "TooDeep"
	// UnsafePath: an entry could lead out of the tree. It is a link of any kind, an
	// absolute path or a path with "..".
	UnsafePath Reason = "UnsafePath"
	// Malformed: a tarball is not well-formed, or contains what a tree can't hold, such as
	// a device or a duplicate file.
	Malformed Reason = "Malformed"
	// IgnoreInvalid: an ignore pattern can't be parsed.
	IgnoreInvalid Reason = "IgnoreInvalid"
	// UnsupportedDigest: a digest is missing or has another algorithm than SHA-256.
	UnsupportedDigest Reason = "UnsupportedDigest"
	// RefusedAddress: a URL, or a redirect target, that is never fetched from.
	RefusedAddress Reason = "RefusedAddress"
	// DigestMismatch: a download does not have the expected digest.
	DigestMismatch Reason = "DigestMismatch"
	// NotFound: the server does not have the URL, or no longer has it.
	NotFound Reason = "NotFound"
	// AccessDenied: the server refuses the download.
	AccessDenied Reason = "AccessDenied"
	// Unreachable: the server can't be reached, or its response is incomplete.
	Unreachable Reason = "Unreachable"
	// Storage: the local disk failed.
	Storage Reason = "StorageFailed"
)

// Error is the error type of every function of this package.
type Error struct {
	// Reason is the cause. Callers decide by it, not by the message.
	Reason Reason
	// Entry is the path of the invalid tree entry, if any.
	Entry string
	// URL of the artifact without parts that could be secret, if relevant.
	URL string
	// Message describes what was found and what was expected.
	Message string
	// Err is the wrapped error, if any.
	Err error

	// retryable is true if another attempt of the same download may succeed.
	retryable bool
}

// Error returns the URL, the entry, the message and the wrapped error.
func (e *Error) Error() string {
	s := e.Message
	if e.Entry != "" {
		s = fmt.Sprintf("%q: %s", truncate(e.Entry, 256), s)
	}
	if e.URL != "" {
		s = fmt.Sprintf("%s: %s", e.URL, s)
	}
	if e.Err != nil {
		s = fmt.Sprintf("%s: %s", s, e.Err)
	}
	return s
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true if a retry of the same artifact can't succeed: it needs another
// revision, another limit or another URL.
func (e *Error) Terminal() bool {
	switch e.Reason {
	case TooLarge, TooManyFiles, TooDeep, UnsafePath, Malformed, IgnoreInvalid, UnsupportedDigest, RefusedAddress:
		return true
	}
	return false
}

func newError(r Reason, entry, format string, args ...any) *Error {
	return &Error{Reason: r, Entry: entry, Message: fmt.Sprintf(format, args...)}
}

func wrapError(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: WithoutURL(err)}
}

// WithoutURL removes the URL from an error of net/http or net/url, because it can
// contain a signature or a password. Messages name the URL as MaskURL returns it.
func WithoutURL(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// MaskURL returns rawURL without credentials, query and fragment, for use in messages.
func MaskURL(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return "(malformed URL)"
	}
	return truncate((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), 512)
}

func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
