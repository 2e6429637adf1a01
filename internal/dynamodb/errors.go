package dynamodb

import (
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// terminalCodes are the errors of requests that would fail again: of the request itself, or of
// permissions.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
var terminalCodes = []string{"AccessDeniedException", "IncompleteSignatureException", "InvalidSignatureException",
	"MissingAuthenticationTokenException", "ResourceNotFoundException", "UnrecognizedClientException",
	"ValidationException"}

// terminalError is an error that another attempt would have, too.
type terminalError struct{ err error }

func (e *terminalError) Error() string { return e.err.Error() }

func (e *terminalError) Unwrap() error { return e.err }

// IsTerminal reports whether another attempt would fail in the same way.
func IsTerminal(err error) bool {
	_, terminal := errors.AsType[*terminalError](err)
	return terminal
}

// requestError describes the error of a request for a table. The message has no request id, so that
// every attempt has the same message.
func requestError(action, table string, err error) error {
	if _, missing := errors.AsType[*types.ResourceNotFoundException](err); missing {
		return &terminalError{fmt.Errorf("table %s does not exist: check the name of the table, the region and the "+
			"endpoint", table)}
	}
	refused, isAPI := errors.AsType[smithy.APIError](err)
	if !isAPI {
		return fmt.Errorf("table %s: %s: %w", table, action, err)
	}
	out := fmt.Errorf("table %s: %s: %s: %s", table, action, refused.ErrorCode(), refused.ErrorMessage())
	if slices.Contains(terminalCodes, refused.ErrorCode()) {
		return &terminalError{out}
	}
	return out
}
