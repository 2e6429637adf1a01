package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"unicode"

	"google.golang.org/grpc/codes"

	"github.com/ksctl/gitops/stacks/artifact"
)

// maxMessageBytes is the maximum length of an agent's message in errors and operations.
const maxMessageBytes = 300

// SecretError reports a missing or invalid key in the Secret of an agent. It names keys and never
// quotes their values.
type SecretError struct {
	// Message describes the problem. Callers prepend the name of the Secret.
	Message string
}

// Error implements error.
func (e *SecretError) Error() string { return e.Message }

// AddressError reports an agent address that is invalid or must not be dialed.
type AddressError struct{ Message string }

// Error implements error.
func (e *AddressError) Error() string { return "invalid agent address: " + e.Message }

// ErrNoWorkers means that an agent does not serve Workers, as ksctl's own agent.
var ErrNoWorkers = errors.New("the agent can't list workers: it is ksctl's own agent, " +
	"or does not serve ksctlAgent.Workers")

// Error is the error of a failed call.
type Error struct {
	// Code is the gRPC code. Unavailable and DeadlineExceeded are also used when the agent does not
	// answer at all.
	Code codes.Code
	// Message is one line of at most 300 bytes. It comes from this package or, without the bearer
	// token, from the agent.
	Message string
	// Answered is true if the error comes from the agent.
	Answered bool
}

// Error implements error.
func (e *Error) Error() string {
	switch {
	case !e.Answered:
		return "the agent can't be reached: " + e.Message
	case e.Message == "":
		return "the agent answers " + e.Code.String()
	}
	return "the agent answers " + e.Code.String() + ": " + e.Message
}

// connectionError converts the error of a failed connection to an *AddressError or an *Error. The
// result omits everything that differs between attempts, such as the local port or the time, and
// everything that an untrusted server sent.
func connectionError(err error) error {
	if _, refused := artifact.AsRefusedAddress(err); refused {
		return &AddressError{"the host name resolves to a link-local or multicast address, which is not allowed"}
	}
	return &Error{Code: codes.Unavailable, Message: describeConnectionError(err)}
}

// tlsRejected is the message when a server rejects the TLS connection: servers do not report why
// they reject a client certificate.
const tlsRejected = "it rejects the TLS connection: check that it trusts the CA of " + CertKey

// describeConnectionError returns the message for the error of a failed connection.
func describeConnectionError(err error) string {
	var (
		earlyClose *earlyCloseError
		invalid    x509.CertificateInvalidError
		host       x509.HostnameError
		unknown    x509.UnknownAuthorityError
		record     tls.RecordHeaderError
		dns        *net.DNSError
		op         *net.OpError
		errno      syscall.Errno
		timeout    interface{ Timeout() bool }
	)
	switch {
	case err == nil:
		return "the server does not speak gRPC, or requires TLS"
	case errors.As(err, &earlyClose):
		return earlyClose.Error()
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &invalid):
		return "its certificate is not valid"
	case errors.As(err, &host):
		return "its certificate is not valid for the host name of its address, or for serverName if set"
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that " + CAKey + " does not contain"
	case errors.As(err, &record):
		return "the server does not speak TLS"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "its host name does not exist"
	case errors.As(err, &dns):
		return "its host name can't be resolved"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &op) && op.Op == "remote error": // how crypto/tls reports a TLS alert
		return tlsRejected
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "it does not answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closes the connection"
	}
	return "the server does not speak gRPC over TLS"
}

// oneLine returns s as one line of printable characters, shortened to a maximum length in bytes.
func oneLine(s string, maxBytes int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsGraphic(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= maxBytes {
		return s
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(s[:maxBytes-len(ellipsis)], "") + ellipsis
}
