package nodegroup

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// RejectedError means that a request is rejected. Its message is for users: Cluster Autoscaler
// shows it in its log and its events.
type RejectedError struct {
	Code    codes.Code
	Message string
}

func reject(code codes.Code, format string, args ...any) error {
	return &RejectedError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (r *RejectedError) Error() string { return r.Message }

// GRPCStatus returns the status that is sent to the client.
func (r *RejectedError) GRPCStatus() *status.Status { return status.New(r.Code, r.Message) }

// recordError is an error of the ChangeRecorder. It is logged but not sent to the client, because
// it may contain internal details of this cluster that users of another cluster must not see.
type recordError struct{ err error }

func (u *recordError) Error() string { return u.err.Error() }
func (u *recordError) Unwrap() error { return u.err }

// GRPCStatus returns the status that is sent to the client.
func (u *recordError) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable,
		"the change could not be recorded, so it was not done; see the log of the controller")
}

// maxQuotedName bounds how many bytes of a received name are quoted in messages.
const maxQuotedName = 128

func truncateName(sent string) string { return truncate(sent, maxQuotedName) }

// truncate shortens s to at most that many bytes and removes invalid UTF-8: gRPC cannot send a
// message that contains it.
func truncate(s string, limit int) string {
	return strings.ToValidUTF8(s[:min(len(s), limit)], "")
}
