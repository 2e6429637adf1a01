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

// The vocabulary of the contract.
type (
	// Error is what every function of this package fails with.
	Error = sops.Error
	// Format is how a file is written.
	Format = sops.Format
	// Reason says why a file can't be decrypted or encrypted.
	Reason = sops.Reason
)

func fail(r Reason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *Error { return fail(sops.FileInvalid, format, args...) }

// ended is the error of a context that ended, nil before.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return &Error{Reason: sops.Interrupted, Message: "interrupted: " + err.Error(), Err: err}
	}
	return nil
}

// recovered turns a panic of a library into an error: one file must not end the
// process. What the panic says could hold a value.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fail(sops.Broken, "a defect in reading this file (a %T); please report it with a file that shows it", r)
	}
}

// ours is err as an Error of this package, which all errors are.
func ours(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return fail(sops.Broken, "an unexpected %T", err)
}

// shown is text of a file's metadata, fit for a message: it is somebody's choice.
func shown(s string) string {
	const most = 160
	cut := len(s) > most
	if cut {
		s = s[:most]
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

// listed is some of many names.
func listed(names []string) string {
	const most = 5
	var s []string
	for _, n := range names[:min(len(names), most)] {
		s = append(s, shown(n))
	}
	if more := len(names) - most; more > 0 {
		s = append(s, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(s, ", ")
}

// asOurs is an error of this package in the chain of another's.
func asOurs(err error) (*Error, bool) { return errors.AsType[*Error](err) }

// answered is the status that a service refused with, as the libraries tell it; 0 if they do not.
func answered(err error) int {
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
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil { // where tokens for GCP come from
		return e.Response.StatusCode
	}
	if e, ok := errors.AsType[*sdkerr.ServiceResponseError](err); ok && e.StatusCode >= 300 { // Huawei; below that it was the body
		return e.StatusCode
	}
	return 0
}
