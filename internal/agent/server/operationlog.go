package server

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// remembered is how many operations of a cluster are, the last one included.
const remembered = 20

// Patterns of what callers say. A size never begins with a dash: it is an argument of programs.
var (
	operationID = regexp.MustCompile(`^[A-Za-z0-9.-]{1,64}$`)
	sizeName    = regexp.MustCompile(`^[A-Za-z0-9]([-_.A-Za-z0-9]{0,62}[A-Za-z0-9])?$`)
	clusterName = regexp.MustCompile(`^[a-z][-a-z0-9]{0,48}[a-z0-9]$`)
)

// ask is what a caller wants to begin.
type ask struct {
	id               string
	current, desired uint32
	size             string
}

// check says what is wrong with it.
func (a ask) check(most uint32) error {
	refuse := func(format string, args ...any) error { return status.Errorf(codes.InvalidArgument, format, args...) }
	switch {
	case !operationID.MatchString(a.id):
		return refuse("id %.80q: want 1 to 64 letters, digits, dots and dashes", a.id)
	case a.size != "" && !sizeName.MatchString(a.size):
		return refuse("size %.80q: want 1 to 64 letters, digits, dots, dashes and underscores", a.size)
	case a.desired > a.current && a.size == "":
		return refuse("to make machines it has to be said of which size")
	case a.desired > most:
		return refuse("desired %d: this agent has a cluster have %d workers at most", a.desired, most)
	}
	return nil
}

// nodeRef is a Node object, and not another of the same name.
type nodeRef struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// record is an operation, as it is written down.
type record struct {
	ID string `json:"id"`
	// From is the number of workers that there were, Desired the one that there are to be.
	From    uint32 `json:"from"`
	Desired uint32 `json:"desired"`
	Size    string `json:"size,omitempty"`
	// State and Failure are by the names of the enums.
	State   string `json:"state"`
	Failure string `json:"failure,omitempty"`
	// Message of one that has ended.
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	// Leaving are the nodes whose machines are deleted: written down before they are.
	Leaving []nodeRef `json:"leaving,omitempty"`
}

// ask that it was begun by.
func (r record) ask() ask { return ask{id: r.ID, current: r.From, desired: r.Desired, size: r.Size} }

func (r record) running() bool { return r.State == agentpb.Operation_RUNNING.String() }

// direction for people and metrics.
func (r record) direction() string {
	if r.Desired < r.From {
		return "down"
	}
	return "up"
}

// end is the record of an operation that has ended.
func (r record) end(failure agentpb.Operation_Failure, message string, now time.Time) record {
	r.State = agentpb.Operation_SUCCEEDED.String()
	if failure != agentpb.Operation_FAILURE_UNSPECIFIED {
		r.State, r.Failure = agentpb.Operation_FAILED.String(), failure.String()
	}
	r.Message, r.Ended = message, now.UTC()
	return r
}

// message on the wire.
func (r record) message() *agentpb.Operation {
	out := &agentpb.Operation{
		Id: r.ID, Desired: r.Desired, Size: r.Size, Message: r.Message,
		State:   agentpb.Operation_State(agentpb.Operation_State_value[r.State]),
		Failure: agentpb.Operation_Failure(agentpb.Operation_Failure_value[r.Failure]),
		Started: timestamppb.New(r.Started),
	}
	if !r.Ended.IsZero() {
		out.Ended = timestamppb.New(r.Ended)
	}
	return out
}

// book is what is known of the operations of a cluster, the last one at the end. It is not changed.
type book struct {
	Operations []record `json:"operations"`
}

func readBook(data []byte) (book, error) {
	var b book
	if len(data) == 0 {
		return b, nil
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return b, fmt.Errorf("the operations that were written down can't be read: %w", err)
	}
	return b, nil
}

// last operation; false if there was none.
func (b book) last() (record, bool) {
	if len(b.Operations) == 0 {
		return record{}, false
	}
	return b.Operations[len(b.Operations)-1], true
}

// find an operation by its id.
func (b book) find(id string) (record, bool) {
	i := slices.IndexFunc(b.Operations, func(r record) bool { return r.ID == id })
	if i < 0 {
		return record{}, false
	}
	return b.Operations[i], true
}

// put is the book with an operation: in its place, or else as the last one. The oldest ones are
// forgotten.
func (b book) put(r record) book {
	out := book{Operations: slices.Clone(b.Operations)}
	if i := slices.IndexFunc(out.Operations, func(o record) bool { return o.ID == r.ID }); i >= 0 {
		out.Operations[i] = r
		return out
	}
	out.Operations = append(out.Operations, r)
	out.Operations = out.Operations[max(0, len(out.Operations)-remembered):]
	return out
}

// meet says what a book makes of something that is asked for: the operation that it is, if it is
// known; an error, if it can't be begun; neither, if it may be.
func (b book) meet(a ask) (record, bool, error) {
	if r, ok := b.find(a.id); ok {
		if r.ask() != a {
			return record{}, false, status.Errorf(codes.InvalidArgument,
				"operation %s is known, from %d to %d workers of size %q: another one needs another id", a.id, r.From, r.Desired, r.Size)
		}
		return r, true, nil
	}
	if r, ok := b.last(); ok && r.running() {
		return record{}, false, status.Errorf(codes.FailedPrecondition, "operation %s is at work, from %d to %d workers: wait until it has ended", r.ID, r.From, r.Desired)
	}
	return record{}, false, nil
}
