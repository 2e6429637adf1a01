package nodegroup

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Refusal is why something is not done. Its message is for people: Cluster Autoscaler shows
// it in its log and its events.
type Refusal struct {
	Code    codes.Code
	Message string
}

func refuse(code codes.Code, format string, args ...any) error {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (r *Refusal) Error() string { return r.Message }

// GRPCStatus is what is answered.
func (r *Refusal) GRPCStatus() *status.Status { return status.New(r.Code, r.Message) }

// unwritten is an error of the ledger. It is logged, not answered: it may say of this cluster
// what those of another need not know.
type unwritten struct{ err error }

func (u *unwritten) Error() string { return u.err.Error() }
func (u *unwritten) Unwrap() error { return u.err }

// GRPCStatus is what is answered.
func (u *unwritten) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable, "it could not be written down, so it is not done; the log of the controller says why")
}

// longest is how much of a name that was sent is said again.
const longest = 128

func brief(sent string) string { return cut(sent, longest) }

// cut shortens s to so many bytes, and leaves only what is UTF-8: a message with anything else
// in it can't be sent.
func cut(s string, to int) string {
	if len(s) > to {
		s = s[:to]
	}
	return strings.ToValidUTF8(s, "")
}
