package provisioner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ksctl/gitops/internal/golden"
)

// fullRequest returns a request with every field set. Its deadline is far in the future.
func fullRequest() Request {
	deadline := time.Date(2200, 1, 2, 3, 4, 5, 0, time.UTC)
	return Request{APIVersion: APIVersion, Operation: Create, ID: "01234567-dnfadx2xy800",
		Cluster: Cluster{Name: "demo", Cloud: "aws", Type: "selfmanaged", Region: "eu-north-1", Distribution: "k3s"},
		From:    2, Desired: 4, Size: "t3.medium", Deadline: &deadline}
}

// Provisioners of third parties read these requests.
func TestGoldenRequests(t *testing.T) {
	full := fullRequest()
	golden.Complete(t, full)
	for name, r := range map[string]Request{
		"request.json": full, "request-least.json": {APIVersion: APIVersion, Operation: List,
			Cluster: Cluster{Name: "demo"}},
	} {
		golden.JSON(t, name, &r)
		err := Serve(t.Context(), bytes.NewReader(golden.Read(t, name)), &bytes.Buffer{},
			runnerFunc(func(_ context.Context, got Request) ([]Worker, error) {
				if !reflect.DeepEqual(got, r) {
					t.Errorf("%s is read as %+v", name, got)
				}
				return nil, nil
			}))
		if err != nil {
			t.Error(err)
		}
	}
}

// Provisioners write these answers.
func TestGoldenResponses(t *testing.T) {
	workers := []Worker{{Index: 1, Name: "demo-vm-wp-1", Size: "t3.medium", Node: "demo-vm-wp-1-abcde"},
		{Name: "demo-vm-wp-0"}}
	full := Response{APIVersion: APIVersion, Workers: workers,
		Error: &Error{Code: "QuotaExceeded", Class: OutOfResources, Message: "a message"}}
	golden.Complete(t, full)
	golden.JSON(t, "answer.json", &full)
	for name, c := range map[string]struct {
		workers []Worker
		err     error
	}{
		"answer-none.json": {[]Worker{}, nil}, "answer-workers.json": {workers, nil},
		"answer-error.json": {nil, full.Error},
	} {
		var out bytes.Buffer
		in, err := json.Marshal(Request{APIVersion: APIVersion, Operation: List, Cluster: Cluster{Name: "demo"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := Serve(t.Context(), bytes.NewReader(in), &out,
			runnerFunc(func(context.Context, Request) ([]Worker, error) { return c.workers, c.err })); err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, name, out.Bytes())
		got, err := ParseResponse(golden.Read(t, name))
		if len(got) != len(c.workers) || (err == nil) != (c.err == nil) {
			t.Errorf("%s is read as %+v, %v", name, got, err)
		}
	}
}

// Requests and responses contain these values.
func TestGoldenConstants(t *testing.T) {
	golden.Equal(t, "constants.txt", []byte(strings.Join([]string{
		"version: " + APIVersion,
		fmt.Sprintf("verbs: %s %s %s", List, Create, Delete),
		fmt.Sprintf("classes: %s %s", OutOfResources, Other),
		"machine: " + Cluster{Name: "demo"}.WorkerName(10),
	}, "\n")+"\n"))
}
