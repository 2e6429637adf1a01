package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

func TestList(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := plain(t, &fake{list: func(_ context.Context, cluster string) (*agentpb.ListResponse, error) {
		return &agentpb.ListResponse{
			Workers: []*agentpb.Worker{{Index: 1, Name: cluster + "-vm-wp-1", Size: "small", Node: "node\n1"}, {Index: 0, Name: cluster + "-vm-wp-0", Size: "small"}},
			Operation: &agentpb.Operation{Id: "a.1", State: agentpb.Operation_FAILED, Desired: 2, Size: "small", Failure: agentpb.Operation_OUT_OF_RESOURCES,
				Message: "no more\nof them", Started: timestamppb.New(began)},
		}, nil
	}})
	got, err := c.List(within(t, 20*time.Second), "demo")
	want := State{Workers: []Worker{{0, "demo-vm-wp-0", "small", ""}, {1, "demo-vm-wp-1", "small", "node 1"}},
		Operation: &Operation{ID: "a.1", Phase: PhaseFailed, Desired: 2, Size: "small", Failure: OutOfResources, Message: "no more of them", Started: began}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestListOfKsctlsOwnAgent(t *testing.T) {
	_, err := plain(t, taking()).List(within(t, 20*time.Second), "")
	if _, ok := errors.AsType[*NoWorkersError](err); !ok || err.Error() == "" {
		t.Errorf("got %v", err)
	}
}

func TestListsThatAreNone(t *testing.T) {
	var many []*agentpb.Worker
	for i := range maxWorkers + 1 {
		many = append(many, &agentpb.Worker{Index: uint32(i)})
	}
	for what, c := range map[string]struct {
		workers []*agentpb.Worker
		code    codes.Code
		says    string
	}{
		"twice the same": {[]*agentpb.Worker{{Index: 3}, {Index: 1}, {Index: 3}}, codes.DataLoss, "two workers with the index 3"},
		"many":           {many, codes.DataLoss, "it lists 10001 workers"},
		"large":          {[]*agentpb.Worker{{Name: strings.Repeat("x", MaxAnswer)}}, codes.ResourceExhausted, "larger than max"},
	} {
		client := plain(t, &fake{list: func(context.Context, string) (*agentpb.ListResponse, error) {
			return &agentpb.ListResponse{Workers: c.workers}, nil
		}})
		_, err := client.List(within(t, 20*time.Second), "")
		if failure, ok := errors.AsType[*Error](err); !ok || failure.Code != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestBegin(t *testing.T) {
	var asked string
	answer, failure := &agentpb.Operation{Id: "a.1", State: agentpb.Operation_RUNNING, Desired: 3}, error(nil)
	c := plain(t, &fake{begin: func(_ context.Context, r *agentpb.BeginRequest) (*agentpb.BeginResponse, error) {
		asked = fmt.Sprintf("%s %s %d of %d %s", r.GetCluster(), r.GetId(), r.GetDesired(), r.GetCurrent(), r.GetSize())
		return &agentpb.BeginResponse{Operation: answer}, failure
	}})
	req := BeginRequest{Cluster: "demo", ID: "a.1", Desired: 3, Current: 2, Size: "small"}
	got, err := c.Begin(within(t, 20*time.Second), req)
	if err != nil || asked != "demo a.1 3 of 2 small" || got != (Operation{ID: "a.1", Phase: PhaseRunning, Desired: 3}) {
		t.Errorf("asked for %s: got %+v, %v", asked, got, err)
	}
	answer = &agentpb.Operation{Id: "a.1", State: agentpb.Operation_FAILED, Failure: 99}
	if got, err := c.Begin(within(t, 20*time.Second), req); err != nil || got.Failure != OtherFailure {
		t.Errorf("a failure that is not known: got %+v, %v", got, err)
	}
	answer = &agentpb.Operation{Id: "a.2", State: agentpb.Operation_RUNNING}
	if _, err := c.Begin(within(t, 20*time.Second), req); err == nil || !strings.Contains(err.Error(), "another operation") {
		t.Errorf("another operation: got %v", err)
	}
	failure = status.Error(codes.Aborted, "there are 4")
	_, err = c.Begin(within(t, 20*time.Second), req)
	if said, ok := errors.AsType[*Error](err); !ok || said.Code != codes.Aborted || err.Error() != "the agent answers Aborted: there are 4" {
		t.Errorf("got %v", err)
	}
}
