package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"unicode"

	"google.golang.org/grpc/codes"

	"github.com/ksctl/gitops/stacks/artifact"
)

// maxWords is how much of what an agent says is told, in bytes.
const maxWords = 300

// SecretError says that the Secret of an agent lacks something, or holds what can't be used.
// It names keys, never what they hold.
type SecretError struct {
	// Key of the Secret.
	Key string
	// Message says what is wrong with "it", the Secret.
	Message string
}

// Error implements error.
func (e *SecretError) Error() string { return e.Message }

// AddressError says that an address is none, or one that is never dialled.
type AddressError struct{ Message string }

// Error implements error.
func (e *AddressError) Error() string { return "the agent's address is refused: " + e.Message }

// NoWorkersError says that an agent does not serve Workers: it is ksctl's own.
type NoWorkersError struct{}

// Error implements error.
func (*NoWorkersError) Error() string {
	return "the agent can't be asked for its workers: it is ksctl's own, or does not serve ksctlAgent.Workers"
}

// TooLargeError says that something was not sent, as agents take no more than so much.
type TooLargeError struct {
	// Bytes of it, and the most that are sent.
	Bytes, Most int
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("it has %d bytes, and an agent takes messages of %d at most: nothing was sent", e.Bytes, e.Most)
}

// Error is a call that failed.
type Error struct {
	// Code of the failure. Unavailable and DeadlineExceeded are also said where nobody answers.
	Code codes.Code
	// Message is one line of at most 300 bytes: our words, or the agent's without our token.
	Message string
	// Answered is true when the agent itself said so.
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

// explain tells why there is no connection, without what differs each time, such as our own
// port or the time, and without what a stranger says.
func explain(err error) error {
	if _, refused := artifact.Refused(err); refused {
		return &AddressError{"its name leads to a link-local or multicast address, which is never dialled"}
	}
	return &Error{Code: codes.Unavailable, Message: trouble(err)}
}

// refusesTLS is all that a server tells that does not take our certificate.
const refusesTLS = "it refuses the TLS connection: see whether it knows the authority of our " + CertKey

// trouble is that in words.
func trouble(err error) string {
	var (
		silent  *silentError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		name    *net.DNSError
		op      *net.OpError
		errno   syscall.Errno
		slow    interface{ Timeout() bool }
	)
	switch {
	case err == nil:
		return "what answers does not speak gRPC, or not without TLS"
	case errors.As(err, &silent):
		return silent.Error()
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "its certificate has expired, or is not valid yet"
	case errors.As(err, &invalid):
		return "its certificate is not valid"
	case errors.As(err, &host):
		return "its certificate is for another name than that of its address, or of serverName"
	case errors.As(err, &unknown):
		return "its certificate is of an authority that " + CAKey + " does not have"
	case errors.As(err, &record):
		return "what answers does not speak TLS"
	case errors.As(err, &name) && name.IsNotFound:
		return "its name is not known"
	case errors.As(err, &name):
		return "its name can't be looked up"
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &op) && op.Op == "remote error": // an alert of TLS, as crypto/tls has it
		return refusesTLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &slow) && slow.Timeout():
		return "it does not answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "it closes the connection"
	}
	return "what answers does not speak gRPC over TLS"
}

// oneLine is a text without line ends, and whatever else is not to be seen, of so many bytes
// at most.
func oneLine(s string, most int) string {
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
	if len(s) <= most {
		return s
	}
	const cut = "…"
	return strings.ToValidUTF8(s[:most-len(cut)], "") + cut
}
