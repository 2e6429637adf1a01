package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// maxRecords is the number of operations that are kept per cluster, including the latest one.
const maxRecords = 20

// Patterns of request fields. A size never begins with a dash, because it becomes a command-line
// argument.
var (
	operationIDPattern = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)
	sizePattern        = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,62}[A-Za-z0-9])?$`)
	clusterNamePattern = regexp.MustCompile(`^[a-z][-a-z0-9]{0,48}[a-z0-9]$`)
)

// validateBegin returns a gRPC status error if the request is invalid.
func validateBegin(a *agentpb.BeginRequest, maxWorkers uint32) error {
	invalid := func(format string, args ...any) error { return status.Errorf(codes.InvalidArgument, format, args...) }
	switch {
	case !operationIDPattern.MatchString(a.Id):
		return invalid("id %.80q: want 1 to 64 letters, digits, dots and dashes", a.Id)
	case a.Size != "" && !sizePattern.MatchString(a.Size):
		return invalid("size %.80q: want 1 to 64 letters, digits, dots, dashes and underscores", a.Size)
	case a.Desired > a.Current && a.Size == "":
		return invalid("size is required to create machines")
	case a.Desired > maxWorkers:
		return invalid("desired %d exceeds the maximum of %d workers (--max-workers)", a.Desired, maxWorkers)
	}
	return nil
}

// nodeRef identifies a Node object. The UID distinguishes it from a later Node with the same name.
type nodeRef struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// record is the stored form of an operation.
type record struct {
	ID string `json:"id"`
	// From is the number of workers at the start, Desired the number to reach.
	From    uint32 `json:"from"`
	Desired uint32 `json:"desired"`
	Size    string `json:"size,omitempty"`
	// State and Failure are names of the enums' values.
	State   string `json:"state"`
	Failure string `json:"failure,omitempty"`
	// Message is set when the operation has ended.
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	// Leaving are the nodes of the machines to delete. They are recorded before the machines are
	// deleted.
	Leaving []nodeRef `json:"leaving,omitempty"`
}

func (r record) running() bool { return r.State == agentpb.Operation_RUNNING.String() }

// busyError returns the gRPC status error of a call that has to wait for the operation.
func (r record) busyError() error {
	return status.Errorf(codes.FailedPrecondition,
		"operation %s is running, from %d to %d workers: wait until it has ended", r.ID, r.From, r.Desired)
}

// direction returns "up" or "down", for logs and metrics.
func (r record) direction() string {
	if r.Desired < r.From {
		return "down"
	}
	return "up"
}

// finish returns the record with the result of the operation.
func (r record) finish(failure agentpb.Operation_Failure, message string, now time.Time) record {
	r.State = agentpb.Operation_SUCCEEDED.String()
	if failure != agentpb.Operation_FAILURE_UNSPECIFIED {
		r.State, r.Failure = agentpb.Operation_FAILED.String(), failure.String()
	}
	r.Message, r.Ended = message, now.UTC()
	return r
}

// operationLog is the stored list of a cluster's operations, oldest first. It is immutable.
type operationLog struct {
	Operations []record `json:"operations"`
}

func parseOperationLog(data []byte) (operationLog, error) {
	var b operationLog
	if len(data) == 0 {
		return b, nil
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return b, fmt.Errorf("decoding the recorded operations: %w", err)
	}
	return b, nil
}

// last returns the latest operation; the zero record, which is not running, if there is none.
func (b operationLog) last() record {
	if len(b.Operations) == 0 {
		return record{}
	}
	return b.Operations[len(b.Operations)-1]
}

// index returns the index of the operation with an ID; -1 if there is none.
func (b operationLog) index(id string) int {
	return slices.IndexFunc(b.Operations, func(r record) bool { return r.ID == id })
}

// find returns the operation with an ID.
func (b operationLog) find(id string) (record, bool) {
	if i := b.index(id); i >= 0 {
		return b.Operations[i], true
	}
	return record{}, false
}

// withRecord returns a copy that contains r: in place of the record with the same ID, or at the
// end. Records beyond maxRecords are dropped, oldest first.
func (b operationLog) withRecord(r record) operationLog {
	out := operationLog{Operations: slices.Clone(b.Operations)}
	if i := b.index(r.ID); i >= 0 {
		out.Operations[i] = r
		return out
	}
	out.Operations = append(out.Operations, r)
	out.Operations = out.Operations[max(0, len(out.Operations)-maxRecords):]
	return out
}

// checkBegin decides whether a request may start an operation. It returns the existing operation
// and true if the ID is known, a gRPC status error if the operation must not start, and false with
// a nil error if it may.
func (b operationLog) checkBegin(a *agentpb.BeginRequest) (record, bool, error) {
	if r, ok := b.find(a.Id); ok {
		if r.From != a.Current || r.Desired != a.Desired || r.Size != a.Size {
			return record{}, false, status.Errorf(codes.InvalidArgument,
				"operation %s already exists with other parameters, from %d to %d workers of size %q: use a new id",
				a.Id, r.From, r.Desired, r.Size)
		}
		return r, true, nil
	}
	if r := b.last(); r.running() {
		return record{}, false, r.busyError()
	}
	return record{}, false, nil
}
