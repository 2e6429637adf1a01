package git

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Reason says what is wrong with a repository, fit to stand in a condition.
type Reason string

// Reasons. Beside them there are those of [artifact.Reason] for a tree that is
// too large or not safe.
const (
	// URLInvalid is a URL that can't name a repository, or one never talked to.
	URLInvalid Reason = "URLInvalid"
	// OperationFailed is a server that can't be reached or answers nonsense.
	OperationFailed Reason = "GitOperationFailed"
	// RepositoryNotFound is a server that knows no such repository.
	RepositoryNotFound Reason = "RepositoryNotFound"
	// RepositoryEmpty is a repository without a commit.
	RepositoryEmpty Reason = "RepositoryEmpty"
	// AuthenticationRequired is a server that asks who is there.
	AuthenticationRequired Reason = "AuthenticationRequired"
	// AuthenticationFailed is a server that does not take the credentials, or
	// takes them and refuses.
	AuthenticationFailed Reason = "AuthenticationFailed"
	// CredentialsInvalid is a key, a certificate or a proxy that can't be used as
	// it is given.
	CredentialsInvalid Reason = "CredentialsInvalid"
	// CertificateInvalid is a server whose certificate nobody vouches for.
	CertificateInvalid Reason = "CertificateInvalid"
	// HostKeyUnknown is an SSH server whose key is not known.
	HostKeyUnknown Reason = "HostKeyUnknown"
	// HostKeyMismatch is an SSH server that has another key than is known.
	HostKeyMismatch Reason = "HostKeyMismatch"
	// ProxyFailed is a proxy that can't be reached or does not let through.
	ProxyFailed Reason = "ProxyFailed"
	// BranchNotFound is a branch that the repository does not have.
	BranchNotFound Reason = "BranchNotFound"
	// TagNotFound is a tag that the repository does not have, or a range that none is in.
	TagNotFound Reason = "TagNotFound"
	// SemVerInvalid is a range of versions that can't be read.
	SemVerInvalid Reason = "SemVerInvalid"
	// SignatureMissing is a commit or tag without a signature.
	SignatureMissing Reason = "SignatureMissing"
	// SignatureInvalid is a signature that does not hold for what it stands on.
	SignatureInvalid Reason = "SignatureInvalid"
	// SignerUnknown is a signature by a key that is not trusted.
	SignerUnknown Reason = "SignerUnknown"
	// SignerExpired is a signature by a key that is not trusted now.
	SignerExpired Reason = "SignerExpired"
	// SubmoduleInvalid is a submodule that can't be found by what the repository says.
	SubmoduleInvalid Reason = "SubmoduleInvalid"
	// CommitNotFound is a commit that the repository does not have, or does not give out.
	CommitNotFound Reason = "CommitNotFound"
	// BranchInvalid is a name that no branch can have.
	BranchInvalid Reason = "BranchInvalid"
	// BranchMoved is a branch that somebody else pushed to while a commit was made for it.
	BranchMoved Reason = "BranchMoved"
	// PushRefused is a server that does not take a commit.
	PushRefused Reason = "PushRefused"
	// PathTaken is a path of a commit where something else than a file is.
	PathTaken Reason = "PathTaken"
	// Unsupported is a repository that this package can't read.
	Unsupported Reason = "UnsupportedRepository"
)

// Error is what every function of this package fails with.
type Error struct {
	// Reason is what is wrong; decide by it.
	Reason Reason
	// Message says what was found, what was expected and what to do.
	Message string
	// Err is the cause, if there is one.
	Err error

	// secrets are masked in the text, also in what a server says.
	secrets []string
}

// Error says what and why. What a server says is cut short.
func (e *Error) Error() string {
	if e.Err != nil {
		return mask(fmt.Sprintf("%s: %.500s", e.Message, mask(e.Err.Error(), e.secrets)), e.secrets)
	}
	return mask(e.Message, e.secrets)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Terminal is true when asking again for the same thing can't help. Whatever
// a push or a change on the server may mend is not.
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

// Unverified is true when what was fetched is not signed as it has to be.
func (e *Error) Unverified() bool {
	switch e.Reason {
	case SignatureMissing, SignatureInvalid, SignerUnknown, SignerExpired:
		return true
	}
	return false
}

func fail(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

func failBy(r Reason, err error, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...), Err: err}
}

// unsafeTree is a bound that was reached, or content that no tree may have.
func unsafeTree(r artifact.Reason, entry, format string, args ...any) *Error {
	err := &artifact.Error{Reason: r, Entry: entry, Message: fmt.Sprintf(format, args...)}
	return failBy(Reason(r), err, "the repository can't be taken")
}

// unreachable judges an error of the HTTP client.
func unreachable(ctx context.Context, err error, masked string) *Error {
	if ctx.Err() != nil {
		return failBy(OperationFailed, context.Cause(ctx), "talking to %s took too long or was interrupted", masked)
	}
	if refused, ok := artifact.Refused(err); ok {
		return failBy(URLInvalid, refused, "%s is not talked to", masked)
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return failBy(CertificateInvalid, bad.Err, "nobody who is trusted vouches for the certificate of %s: if its authority is your own, put it into ca.crt of the Secret", masked)
	}
	if proxy, ok := errors.AsType[*artifact.ProxyError](err); ok {
		return failBy(ProxyFailed, proxy, "%s can't be reached through the proxy", masked)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "proxyconnect" || op.Op == "socks connect") {
		return failBy(ProxyFailed, op.Err, "the proxy for %s can't be reached", masked)
	}
	return failBy(OperationFailed, artifact.WithoutURL(err), "%s can't be reached", masked)
}

// answered judges the status of an answer.
func answered(code int, masked string, loggedIn bool) error {
	switch {
	case code == http.StatusOK:
		return nil
	case code == http.StatusUnauthorized && !loggedIn:
		return fail(AuthenticationRequired, "%s asks for credentials: the repository is private, or there is none of that name", masked)
	case code == http.StatusUnauthorized:
		return fail(AuthenticationFailed, "%s does not take the credentials", masked)
	case code == http.StatusForbidden:
		return fail(AuthenticationFailed, "%s refuses access (403 Forbidden)", masked)
	case code == http.StatusProxyAuthRequired:
		return fail(ProxyFailed, "the proxy for %s asks for credentials, or does not take those that it got (407)", masked)
	case code == http.StatusNotFound || code == http.StatusGone:
		return fail(RepositoryNotFound, "there is no repository at %s: check the URL, or make the repository", masked)
	default:
		return fail(OperationFailed, "%s answered %d %s", masked, code, http.StatusText(code))
	}
}
