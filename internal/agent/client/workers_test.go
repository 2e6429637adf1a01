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

	"github.com/ksctl/gitops/internal/agent/agentpb"
)

func TestList(t *testing.T) {
	var asked string
	c := dialPlaintext(t, &fakeAgent{list: func(_ context.Context, cluster string) (*agentpb.ListResponse, error) {
		asked = cluster
		return &agentpb.ListResponse{
			Workers: []*agentpb.Worker{{Index: 1, Size: "small", Node: "node\n1"}, {Index: 0, Size: "small"}},
			Operation: &agentpb.Operation{Id: "a.1", State: agentpb.Operation_FAILED, Desired: 2, Size: "small",
				Failure: agentpb.Operation_OUT_OF_RESOURCES,
				Message: "no more\nof them"},
		}, nil
	}})
	got, err := c.List(withTimeout(t, 20*time.Second), "demo")
	want := State{Workers: []Worker{{0, "small", ""}, {1, "small", "node 1"}},
		Operation: &Operation{ID: "a.1", State: agentpb.Operation_FAILED, Failure: agentpb.Operation_OUT_OF_RESOURCES,
			Message: "no more of them"}}
	if err != nil || asked != "demo" || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestListUnimplemented(t *testing.T) {
	_, err := dialPlaintext(t, acceptAll()).List(withTimeout(t, 20*time.Second), "")
	if !errors.Is(err, ErrNoWorkers) {
		t.Errorf("got %v", err)
	}
}

func TestListRejectsInvalidResponses(t *testing.T) {
	var many []*agentpb.Worker
	for i := range maxWorkers + 1 {
		many = append(many, &agentpb.Worker{Index: uint32(i)})
	}
	for what, c := range map[string]struct {
		workers []*agentpb.Worker
		code    codes.Code
		says    string
	}{
		"duplicate index": {[]*agentpb.Worker{{Index: 3}, {Index: 1}, {Index: 3}}, codes.DataLoss,
			"two workers with index 3"},
		"too many workers": {many, codes.DataLoss, "the list has 10001 workers"},
		"too many bytes": {[]*agentpb.Worker{{Name: strings.Repeat("x", MaxResponse)}}, codes.ResourceExhausted,
			"larger than max"},
	} {
		client := dialPlaintext(t, &fakeAgent{list: func(context.Context, string) (*agentpb.ListResponse, error) {
			return &agentpb.ListResponse{Workers: c.workers}, nil
		}})
		_, err := client.List(withTimeout(t, 20*time.Second), "")
		if failure, ok := errors.AsType[*Error](err); !ok || failure.Code != c.code ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func TestBegin(t *testing.T) {
	var requested string
	answer, failure := &agentpb.Operation{Id: "a.1", State: agentpb.Operation_RUNNING, Desired: 3}, error(nil)
	c := dialPlaintext(t, &fakeAgent{begin: func(_ context.Context,
		r *agentpb.BeginRequest) (*agentpb.BeginResponse, error) {
		requested = fmt.Sprintf("%s %s %d of %d %s", r.GetCluster(), r.GetId(), r.GetDesired(), r.GetCurrent(),
			r.GetSize())
		return &agentpb.BeginResponse{Operation: answer}, failure
	}})
	req := &agentpb.BeginRequest{Cluster: "demo", Id: "a.1", Desired: 3, Current: 2, Size: "small"}
	got, err := c.Begin(withTimeout(t, 20*time.Second), req)
	if err != nil || requested != "demo a.1 3 of 2 small" ||
		got != (Operation{ID: "a.1", State: agentpb.Operation_RUNNING}) {
		t.Errorf("requested %s: got %+v, %v", requested, got, err)
	}
	answer = &agentpb.Operation{Id: "a.2", State: agentpb.Operation_RUNNING}
	if _, err := c.Begin(withTimeout(t, 20*time.Second), req); err == nil ||
		!strings.Contains(err.Error(), "another operation") {
		t.Errorf("another operation: got %v", err)
	}
	failure = status.Error(codes.Aborted, "there are 4")
	_, err = c.Begin(withTimeout(t, 20*time.Second), req)
	if callErr, ok := errors.AsType[*Error](err); !ok || callErr.Code != codes.Aborted ||
		err.Error() != "the agent answers Aborted: there are 4" {
		t.Errorf("got %v", err)
	}
}
