package git

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Reason is the cause of an Error, and can be the reason of a condition.
type Reason = artifact.Reason

// Reasons. For a tree that is too large or not safe, an Error has one of the reasons of
// package artifact instead.
const (
	// URLInvalid: the URL can't name a repository, or has an address that is always refused.
	URLInvalid Reason = "URLInvalid"
	// OperationFailed: the server can't be reached, or its response is invalid.
	OperationFailed Reason = "GitOperationFailed"
	// RepositoryNotFound: the server does not have the repository.
	RepositoryNotFound Reason = "RepositoryNotFound"
	// RepositoryEmpty: the repository has no commit.
	RepositoryEmpty Reason = "RepositoryEmpty"
	// AuthenticationRequired: the server requires credentials.
	AuthenticationRequired Reason = "AuthenticationRequired"
	// AuthenticationFailed: the server rejects the credentials, or accepts them and denies
	// access.
	AuthenticationFailed Reason = "AuthenticationFailed"
	// CredentialsInvalid: a given key, certificate or proxy can't be used.
	CredentialsInvalid Reason = "CredentialsInvalid"
	// CertificateInvalid: the certificate of the server is not trusted.
	CertificateInvalid Reason = "CertificateInvalid"
	// HostKeyUnknown: known_hosts has no key of the SSH server.
	HostKeyUnknown Reason = "HostKeyUnknown"
	// HostKeyMismatch: the SSH server has another key than known_hosts.
	HostKeyMismatch Reason = "HostKeyMismatch"
	// ProxyFailed: the proxy can't be reached, or refuses to connect to the server.
	ProxyFailed Reason = "ProxyFailed"
	// BranchNotFound: the repository does not have the branch.
	BranchNotFound Reason = "BranchNotFound"
	// TagNotFound: the repository does not have the tag, or no tag in the range.
	TagNotFound Reason = "TagNotFound"
	// SemVerInvalid: the version range can't be parsed.
	SemVerInvalid Reason = "SemVerInvalid"
	// SignatureMissing: the commit or tag has no signature.
	SignatureMissing Reason = "SignatureMissing"
	// SignatureInvalid: the signature is not valid for the commit or tag.
	SignatureInvalid Reason = "SignatureInvalid"
	// SignerUnknown: the signature is by a key that is not trusted.
	SignerUnknown Reason = "SignerUnknown"
	// SignerExpired: the signature is by a key that is not trusted at this time.
	SignerExpired Reason = "SignerExpired"
	// SubmoduleInvalid: the entry of a submodule in .gitmodules is missing or can't be used.
	SubmoduleInvalid Reason = "SubmoduleInvalid"
	// CommitNotFound: the repository does not have the commit, or does not serve it.
	CommitNotFound Reason = "CommitNotFound"
	// BranchInvalid: the name is not a valid branch name.
	BranchInvalid Reason = "BranchInvalid"
	// BranchMoved: the branch changed on the server after it was read for a commit.
	BranchMoved Reason = "BranchMoved"
	// PushRefused: the server rejected a push.
	PushRefused Reason = "PushRefused"
	// PathTaken: a path of the commit exists in the repository and is not a file.
	PathTaken Reason = "PathTaken"
	// Unsupported: this package can't read the repository.
	Unsupported Reason = "UnsupportedRepository"
)

// Error is the error type of every function of this package.
type Error struct {
	// Reason is the cause. Callers decide by it, not by the message.
	Reason Reason
	// Message describes what was found, what was expected and what to do.
	Message string
	// Err is the wrapped error, if any.
	Err error

	// secrets are masked in the text, including texts of a server.
	secrets []string
}

// Error returns the message and the wrapped error, with secrets masked. It truncates texts of
// a server.
func (e *Error) Error() string {
	if e.Err != nil {
		return mask(fmt.Sprintf("%s: %.500s", e.Message, mask(e.Err.Error(), e.secrets)), e.secrets)
	}
	return mask(e.Message, e.secrets)
}

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true if a retry of the same operation can't succeed. It is false if a push
// or a change on the server can resolve the error.
func (e *Error) Terminal() bool {
	switch e.Reason {
	case URLInvalid, CredentialsInvalid, SemVerInvalid, SubmoduleInvalid, Unsupported, BranchInvalid:
		return true
	}
	if inner, ok := errors.AsType[*artifact.Error](e.Err); ok {
		return inner.Terminal()
	}
	return false
}

// Unverified is true if the commit or tag does not have the required signature.
func (e *Error) Unverified() bool {
	switch e.Reason {
	case SignatureMissing, SignatureInvalid, SignerUnknown, SignerExpired:
		return true
	}
	return false
}

func newError(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

func wrapError(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: err}
}

// treeError returns the error of a tree that exceeds a limit or has content that is not
// allowed.
func treeError(r artifact.Reason, entry, format string, args ...any) *Error {
	err := &artifact.Error{Reason: r, Entry: entry, Message: fmt.Sprintf(format, args...)}
	return wrapError(r, err, "the repository can't be used")
}

// storageError returns an *Error unchanged, and wraps other errors as a failure to store objects.
func storageError(err error) error {
	if _, ok := errors.AsType[*Error](err); ok || err == nil {
		return err
	}
	return wrapError(artifact.Storage, err, "storing objects")
}

// endpoint describes the server of a repository in errors.
type endpoint struct {
	// maskedURL is the URL of the repository without credentials.
	maskedURL string
	// secrets must not appear in errors.
	secrets []string
}

// redactError makes an error mask the secrets of the repository.
func (e *endpoint) redactError(err error) error {
	if gitErr, ok := errors.AsType[*Error](err); ok {
		gitErr.secrets = e.secrets
		return gitErr
	}
	return err
}

// connectionError returns the *Error of a failed connection.
func (e *endpoint) connectionError(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return wrapError(OperationFailed, context.Cause(ctx), "the request to %s timed out or was interrupted",
			e.maskedURL)
	}
	if refused, ok := artifact.AsRefusedAddress(err); ok {
		return wrapError(URLInvalid, refused, "%s has an address that is never connected to", e.maskedURL)
	}
	if certErr, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return wrapError(CertificateInvalid, certErr.Err,
			"the certificate of %s is not trusted: if its authority is private, add it to ca.crt of the Secret",
			e.maskedURL)
	}
	if proxy, ok := errors.AsType[*artifact.ProxyError](err); ok {
		return wrapError(ProxyFailed, proxy, "%s can't be reached through the proxy", e.maskedURL)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "proxyconnect" || op.Op == "socks connect") {
		return wrapError(ProxyFailed, op.Err, "the proxy for %s can't be reached", e.maskedURL)
	}
	return wrapError(OperationFailed, artifact.WithoutURL(err), "%s can't be reached", e.maskedURL)
}
