package codec

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/hashicorp/vault/api"
	"github.com/huaweicloud/huaweicloud-sdk-go-v3/core/sdkerr"
	"golang.org/x/oauth2"

	"github.com/ksctl/gitops/stacks/sops"
)

// Aliases for the types of the contract.
type (
	// Error is the error type of this package.
	Error = sops.Error
	// Format is the file format.
	Format = sops.Format
	// Reason is a category of decryption and encryption errors.
	Reason = sops.Reason
)

func newError(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *Error { return newError(sops.FileInvalid, format, args...) }

// contextError returns the error of a context that ended, or nil.
func contextError(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Error{Reason: sops.Interrupted, Message: "interrupted: " + err.Error(), Err: err}
	}
	return nil
}

// recoverPanic turns a panic of a library into an error: one file must not end the process. It
// reports only the type of the panic, because the text may contain a value.
func recoverPanic(err *error) {
	if r := recover(); r != nil {
		*err = newError(sops.InternalFailure,
			"internal error while processing the file (panic with %T): report it with a file that reproduces "+
				"the error", r)
	}
}

// toError returns the *Error in the chain of err. All expected errors have one; for others, it
// returns a new one without the text of err.
func toError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return newError(sops.InternalFailure, "unexpected error of type %T", err)
}

// sanitize makes text of the metadata of a file safe for a message: it truncates the text and
// replaces special characters. The author of the file can choose any text.
func sanitize(s string) string {
	const maxLength = 160
	cut := len(s) > maxLength
	if cut {
		s = s[:maxLength]
	}
	s = strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f && r != '"' && r != '<' && r != '>' && r != '`' {
			return r
		}
		return '?'
	}, s)
	if cut {
		s += "…"
	}
	return s
}

// summarize joins the first names, and counts the others.
func summarize(names []string) string {
	const maxNames = 5
	var s []string
	for _, n := range names[:min(len(names), maxNames)] {
		s = append(s, sanitize(n))
	}
	if more := len(names) - maxNames; more > 0 {
		s = append(s, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(s, ", ")
}

// statusCode returns the HTTP status code in the error of a client library; 0 if it has none.
func statusCode(err error) int {
	if e, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err); ok { // AWS
		return e.HTTPStatusCode()
	}
	if e, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return e.StatusCode
	}
	if e, ok := errors.AsType[*api.ResponseError](err); ok { // Vault
		return e.StatusCode
	}
	if e, ok := errors.AsType[interface {
		error
		HTTPCode() int
	}](err); ok { // GCP
		return max(e.HTTPCode(), 0)
	}
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil { // the token service of GCP
		return e.Response.StatusCode
	}
	// Huawei; below 300, the error is about the body
	if e, ok := errors.AsType[*sdkerr.ServiceResponseError](err); ok && e.StatusCode >= 300 {
		return e.StatusCode
	}
	return 0
}
