package artifact

import (
	"errors"
	"fmt"
	"net/url"
)

// Reason says what is wrong with an artifact.
type Reason string

// Reasons. They are CamelCase so that they can stand in a condition.
const (
	// TooLarge is a download, a tree or a file above its limit in bytes.
	TooLarge Reason = "TooLarge"
	// TooManyFiles is a tree with more files and folders than the limit.
	TooManyFiles Reason = "TooManyFiles"
	// TooDeep is a path with more elements than the limit.
	TooDeep Reason = "TooDeep"
	// UnsafePath is an entry that could reach out of the tree: a link of any
	// kind, an absolute path, a path with "..".
	UnsafePath Reason = "UnsafePath"
	// Malformed is a tarball that is not well-formed, or holds what a tree of
	// files can't: devices, a file twice.
	Malformed Reason = "Malformed"
	// IgnoreInvalid is a pattern of files to leave out that can't be read.
	IgnoreInvalid Reason = "IgnoreInvalid"
	// UnsupportedDigest is a digest of another algorithm than SHA-256, or none.
	UnsupportedDigest Reason = "UnsupportedDigest"
	// RefusedAddress is a URL, or a redirect to one, that is never fetched from.
	RefusedAddress Reason = "RefusedAddress"
	// DigestMismatch is a download that is not what the digest names.
	DigestMismatch Reason = "DigestMismatch"
	// NotFound is a URL that the server knows nothing of (any more).
	NotFound Reason = "NotFound"
	// AccessDenied is a server that refuses the download.
	AccessDenied Reason = "AccessDenied"
	// Unreachable is a server that can't be reached or does not answer whole.
	Unreachable Reason = "Unreachable"
	// Storage is a failure of the local disk.
	Storage Reason = "StorageFailed"
)

// Error is what every function of this package fails with.
type Error struct {
	// Reason is what is wrong; decide by it.
	Reason Reason
	// Entry is the path in the tree, where one is to blame.
	Entry string
	// URL of the artifact without what could be secret in it, where it matters.
	URL string
	// Message says what was found and what was expected.
	Message string
	// Err is the cause, if there is one.
	Err error

	// again is true for what the next attempt of the same download may mend.
	again bool
}

// Error says what, where and why.
func (e *Error) Error() string {
	s := e.Message
	if e.Entry != "" {
		s = fmt.Sprintf("%q: %s", clip(e.Entry, 256), s)
	}
	if e.URL != "" {
		s = fmt.Sprintf("%s: %s", e.URL, s)
	}
	if e.Err != nil {
		s = fmt.Sprintf("%s: %s", s, e.Err)
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true when trying the same artifact again can't help: it takes
// another revision, another limit or another URL.
func (e *Error) Terminal() bool {
	switch e.Reason {
	case TooLarge, TooManyFiles, TooDeep, UnsafePath, Malformed, IgnoreInvalid, UnsupportedDigest, RefusedAddress:
		return true
	case DigestMismatch, NotFound, AccessDenied, Unreachable, Storage:
		return false
	}
	return false
}

func fail(r Reason, entry, format string, args ...any) *Error {
	return &Error{Reason: r, Entry: entry, Message: fmt.Sprintf(format, args...)}
}

func failBy(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: WithoutURL(err)}
}

// WithoutURL takes the URL out of an error of net/http or net/url: it can hold
// a signature or a password. A message names it as MaskURL shows it.
func WithoutURL(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	return err
}

// MaskURL is rawURL without credentials, query and fragment, fit for a message.
func MaskURL(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return "(malformed URL)"
	}
	return clip((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), 512)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
