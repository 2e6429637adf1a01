package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

const (
	running   = "RUNNING"
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
)

func TestScaleUpAndDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newFakeCloud(2), &memoryStore{})
		if got := r.execute(t, "up", 2, 4); got.State != succeeded || got.Message != "the cluster has 4 workers" {
			t.Errorf("%+v", got)
		}
		if got := r.execute(t, "down", 4, 1); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if got := r.execute(t, "same", 1, 1); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if got := r.requests(); got != "Create 2 4 medium; Delete 4 1 medium" {
			t.Errorf("did %s", got)
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001" {
			t.Errorf("nodes %s", got)
		}
		res := r.list(t)
		if len(res.Workers) != 1 || res.Workers[0].Name != "demo-vm-wp-0" ||
			res.Workers[0].Node != "demo-vm-wp-0-00001" || res.Workers[0].Size != "medium" {
			t.Errorf("workers %v", res.Workers)
		}
		if res.Operation.Id != "same" || res.Operation.Ended == nil {
			t.Errorf("operation %v", res.Operation)
		}
	})
}

func TestBeginRejectsInvalidRequests(t *testing.T) {
	for name, c := range map[string]struct {
		request *agentpb.BeginRequest
		code    codes.Code
	}{
		"no id": {&agentpb.BeginRequest{Current: 2, Desired: 3, Size: "m"}, codes.InvalidArgument},
		"id with a space": {&agentpb.BeginRequest{Id: "a b", Current: 2, Desired: 3, Size: "m"},
			codes.InvalidArgument},
		"long id": {&agentpb.BeginRequest{Id: strings.Repeat("a", 65), Current: 2, Desired: 3, Size: "m"},
			codes.InvalidArgument},
		"no size": {&agentpb.BeginRequest{Id: "a", Current: 2, Desired: 3}, codes.InvalidArgument},
		"size like a flag": {&agentpb.BeginRequest{Id: "a", Current: 2, Desired: 3, Size: "--noWP"},
			codes.InvalidArgument},
		"too many workers": {&agentpb.BeginRequest{Id: "a", Current: 2, Desired: 1001, Size: "m"},
			codes.InvalidArgument},
		"unknown cluster": {&agentpb.BeginRequest{Id: "a", Cluster: "other", Current: 2, Desired: 3, Size: "m"},
			codes.NotFound},
		"current too high":  {&agentpb.BeginRequest{Id: "a", Current: 3, Desired: 4, Size: "m"}, codes.Aborted},
		"current too low":   {&agentpb.BeginRequest{Id: "a", Current: 1, Desired: 2, Size: "m"}, codes.Aborted},
		"hidden scale-down": {&agentpb.BeginRequest{Id: "a", Current: 0, Desired: 1, Size: "m"}, codes.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newFakeCloud(2), &memoryStore{})
				_, err := (&workersServer{server: r.Server}).Begin(t.Context(), c.request)
				if status.Code(err) != c.code {
					t.Errorf("%v, want %s", err, c.code)
				}
				if r.requests() != "" || r.store.saves != 0 {
					t.Errorf("did %q, %d writes", r.requests(), r.store.saves)
				}
			})
		})
	}
}

// delayProvisioner makes every request except List take a minute.
func delayProvisioner(c *fakeCloud) {
	c.before = func(ctx context.Context, r provisioner.Request) error {
		if r.Operation == provisioner.List {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the provisioner was killed: %w", ctx.Err())
		case <-time.After(time.Minute):
			return nil
		}
	}
}

func TestOneOperationAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2)
		delayProvisioner(c)
		r := start(t, c, &memoryStore{})
		if op, err := r.begin("a", 2, 3); err != nil || op.State != agentpb.Operation_RUNNING {
			t.Fatalf("%v, %v", op, err)
		}
		synctest.Wait()
		if op, err := r.begin("a", 2, 3); err != nil || op.State != agentpb.Operation_RUNNING ||
			op.Message != "creating 1 machines of size medium" {
			t.Errorf("same request again: %v, %v", op, err)
		}
		if _, err := r.begin("a", 2, 4); status.Code(err) != codes.InvalidArgument {
			t.Errorf("other parameters with the same ID: %v", err)
		}
		if _, err := r.begin("b", 2, 4); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("another operation: %v", err)
		}
		if op := r.list(t).Operation; op.Id != "a" || op.State != agentpb.Operation_RUNNING {
			t.Errorf("listed: %v", op)
		}
		if got := r.execute(t, "a", 2, 3); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if op, err := r.begin("a", 2, 3); err != nil || op.State != agentpb.Operation_SUCCEEDED {
			t.Errorf("after the operation ended: %v, %v", op, err)
		}
		if got := r.requests(); got != "Create 2 3 medium" {
			t.Errorf("did %s", got)
		}
	})
}

func TestConcurrentBeginStartsOneOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2)
		delayProvisioner(c)
		r := start(t, c, &memoryStore{})
		const n = 20
		answers := make(chan codes.Code, n)
		for i := range n {
			go func() {
				_, err := r.begin(fmt.Sprintf("op-%d", i), 2, 3)
				answers <- status.Code(err)
			}()
		}
		count := map[codes.Code]int{}
		for range n {
			count[<-answers]++
		}
		if count[codes.OK] != 1 || count[codes.FailedPrecondition] != n-1 {
			t.Errorf("answers %v", count)
		}
	})
}

func TestOldOperationsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newFakeCloud(2), &memoryStore{})
		for i := range 2 * maxRecords {
			r.execute(t, fmt.Sprintf("op-%d", i), 2, 2)
		}
		if _, err := r.begin(fmt.Sprintf("op-%d", maxRecords), 1, 5); status.Code(err) != codes.InvalidArgument {
			t.Errorf("oldest recorded operation: %v", err)
		}
		if op, err := r.begin("op-0", 2, 2); err != nil || op.State != agentpb.Operation_SUCCEEDED {
			t.Errorf("operation that was dropped: %v, %v", op, err)
		}
		var b operationLog
		if err := json.Unmarshal(r.store.data["demo"], &b); err != nil || len(b.Operations) != maxRecords {
			t.Errorf("%d operations are recorded, %v", len(b.Operations), err)
		}
	})
}

func TestOperationFailures(t *testing.T) {
	quota := &provisioner.Error{Code: "Quota", Class: provisioner.OutOfResources, Message: "no more machines"}
	for name, c := range map[string]struct {
		verb    provisioner.Verb
		err     error
		panics  bool
		desired uint32
		failure string
		message string
	}{
		"no capacity": {verb: provisioner.Create, err: quota, desired: 4, failure: "OUT_OF_RESOURCES",
			message: "the cluster has 2 workers instead of 4: Quota: no more machines"},
		"create fails": {verb: provisioner.Create, err: errors.New("broken"), desired: 4, failure: "OTHER",
			message: "broken"},
		"pretended create": {verb: provisioner.Create, err: errPretend, desired: 4, failure: "OTHER",
			message: "the provisioner reported the machines as created, but the cluster has 2 workers instead of 4"},
		"pretended delete": {verb: provisioner.Delete, err: errPretend, desired: 1, failure: "OTHER",
			message: "the provisioner reported the machines as deleted, but the cluster has 2 workers instead of 1"},
		"delete fails": {verb: provisioner.Delete, err: errors.New("broken"), desired: 1, failure: "OTHER",
			message: "broken"},
		"panic": {verb: provisioner.Create, panics: true, desired: 4, failure: "OTHER",
			message: "internal error of the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newFakeCloud(2)
				cl.before = func(_ context.Context, r provisioner.Request) error {
					if r.Operation != c.verb {
						return nil
					}
					if c.panics {
						panic("at the disco")
					}
					return c.err
				}
				r := start(t, cl, &memoryStore{})
				got := r.execute(t, "a", 2, c.desired)
				if got.State != failed || got.Failure != c.failure || !strings.Contains(got.Message, c.message) {
					t.Errorf("%+v", got)
				}
				if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002" {
					t.Errorf("nodes %s", got)
				}
				cl.before = nil
				if got := r.execute(t, "b", 2, 3); got.State != succeeded {
					t.Errorf("next operation: %+v", got)
				}
			})
		})
	}
}

func TestPartialCreateReportsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(2)
		c.before = func(_ context.Context, r provisioner.Request) error {
			if r.Operation == provisioner.Create {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.addMachine(2, "medium")
				return &provisioner.Error{Code: "Quota", Class: provisioner.OutOfResources, Message: "no more"}
			}
			return nil
		}
		r := start(t, c, &memoryStore{})
		if got := r.execute(t, "a", 2, 5); got.Failure != "OUT_OF_RESOURCES" ||
			!strings.HasPrefix(got.Message, "the cluster has 3 workers instead of 5") {
			t.Errorf("%+v", got)
		}
	})
}

func TestStoreUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newFakeCloud(2), &memoryStore{})
		r.store.setError(errors.New("the API server is away"))
		if _, err := r.begin("a", 2, 3); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
		if r.requests() != "" {
			t.Errorf("did %s", r.requests())
		}
		r.store.setError(nil)
		r.fakeCloud.before = func(_ context.Context, q provisioner.Request) error {
			if q.Operation == provisioner.Create {
				r.store.setError(errors.New("the API server is away"))
				time.AfterFunc(time.Minute, func() { r.store.setError(nil) })
			}
			return nil
		}
		began := time.Now()
		if got := r.execute(t, "a", 2, 3); got.State != succeeded || time.Since(began) < time.Minute {
			t.Errorf("%+v after %s", got, time.Since(began))
		}
	})
}

func TestStoreConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newFakeCloud(2), &memoryStore{})
		other, err := json.Marshal(
			operationLog{Operations: []record{{ID: "x", From: 1, Desired: 2, Size: "medium", State: succeeded}}})
		if err != nil {
			t.Fatal(err)
		}
		r.store.data = map[string][]byte{"demo": other}
		if _, err := r.begin("a", 2, 3); status.Code(err) != codes.Aborted {
			t.Errorf("%v", err)
		}
		if op, err := r.begin("x", 1, 2); err != nil || op.State != agentpb.Operation_SUCCEEDED {
			t.Errorf("operation of the other agent: %v, %v", op, err)
		}
		if got := r.execute(t, "a", 2, 3); got.State != succeeded {
			t.Errorf("%+v", got)
		}
	})
}

// storeWithRunning returns a store with a running operation.
func storeWithRunning(t *testing.T, r record) *memoryStore {
	t.Helper()
	r.ID, r.State, r.Size = "a", running, "medium"
	data, err := json.Marshal(operationLog{Operations: []record{r}})
	if err != nil {
		t.Fatal(err)
	}
	return &memoryStore{data: map[string][]byte{"demo": data}}
}

func TestResumeCompletesOperationOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before  record
		there   uint32
		state   string
		did     string
		nodes   int
		message string
	}{
		"up, not started":     {record{From: 2, Desired: 4}, 2, succeeded, "Create 2 4 medium", 4, ""},
		"up, half done":       {record{From: 2, Desired: 4}, 3, succeeded, "Create 3 4 medium", 4, ""},
		"up, done":            {record{From: 2, Desired: 4}, 4, succeeded, "", 4, ""},
		"up, workers added":   {record{From: 2, Desired: 4}, 7, failed, "", 7, "another client"},
		"up, workers removed": {record{From: 2, Desired: 4}, 1, succeeded, "Create 1 4 medium", 4, ""},
		"down, not started":   {record{From: 4, Desired: 2}, 4, succeeded, "Delete 4 2 medium", 2, ""},
		"down, half done":     {record{From: 4, Desired: 2}, 3, succeeded, "Delete 3 2 medium", 2, ""},
		"down, done":          {record{From: 4, Desired: 2}, 2, succeeded, "", 2, ""},
		"down, more removed":  {record{From: 4, Desired: 2}, 1, failed, "", 1, "another client"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newFakeCloud(c.there), storeWithRunning(t, c.before))
				got, err := r.clusters["demo"].await(t.Context(), "a")
				if err != nil || got.State != c.state || !strings.Contains(got.Message, c.message) {
					t.Errorf("%+v, %v", got, err)
				}
				if got := r.requests(); got != c.did {
					t.Errorf("did %q, want %q", got, c.did)
				}
				if got := strings.Fields(r.nodes(t)); len(got) != c.nodes {
					t.Errorf("nodes %v", got)
				}
			})
		})
	}
}

func TestResumeDeletesLeftoverNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCloud(4)
		delete(c.machines, 3) // the agent stopped before it deleted the node
		leaving := []nodeRef{{"demo-vm-wp-3-00004", "uid-demo-vm-wp-3-00004"},
			{"demo-vm-wp-2-00003", "uid-demo-vm-wp-2-00003"}}
		r := start(t, c, storeWithRunning(t, record{From: 4, Desired: 3, Leaving: leaving}))
		if got, err := r.clusters["demo"].await(t.Context(), "a"); err != nil || got.State != succeeded {
			t.Errorf("%+v, %v", got, err)
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002 demo-vm-wp-2-00003" {
			t.Errorf("nodes %s: the nodes of existing machines must remain", got)
		}
	})
}

func TestShutdown(t *testing.T) {
	for name, within := range map[string]time.Duration{"kills slow provisioner": 10 * time.Second,
		"waits for provisioner": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store := newFakeCloud(2), &memoryStore{}
				delayProvisioner(c)
				r := start(t, c, store, func(o *Options) { o.StopTimeout = within })
				if _, err := r.begin("a", 2, 3); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				waiting := make(chan error, 1)
				go func() {
					_, err := r.clusters["demo"].await(t.Context(), "a")
					waiting <- err
				}()
				synctest.Wait()
				began := time.Now()
				r.stop()
				if took, want := time.Since(began), min(within, time.Minute); took != want {
					t.Errorf("it took %s, want %s", took, want)
				}
				if err := <-waiting; status.Code(err) != codes.Unavailable {
					t.Errorf("await during shutdown: %v", err)
				}
				if _, err := r.begin("b", 2, 3); status.Code(err) != codes.Unavailable {
					t.Errorf("begin during shutdown: %v", err)
				}
				again := start(t, c, store)
				if got := again.execute(t, "a", 2, 3); got.State != succeeded {
					t.Errorf("%+v", got)
				}
				if c.created != 1 || len(c.machines) != 3 {
					t.Errorf("%d machines were created, and %d exist", c.created, len(c.machines))
				}
			})
		})
	}
}

func TestNotReadyUntilOperationsAreLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newFakeCloud(2), &memoryStore{}
		store.setError(errors.New("the API server is away"))
		time.AfterFunc(time.Minute, func() { store.setError(nil) })
		s, err := New(Options{Store: store,
			Clusters: []Cluster{{Cluster: provisioner.Cluster{Name: "demo"}, Client: c.client, Runner: c}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			s.Run(ctx)
			close(done)
		}()
		synctest.Wait()
		if _, err := (&workersServer{server: s}).List(ctx,
			&agentpb.ListRequest{}); status.Code(err) != codes.Unavailable || s.Ready() {
			t.Errorf("%v, ready %v", err, s.Ready())
		}
		if err := s.AwaitReady(ctx); err != nil || !s.Ready() {
			t.Errorf("%v, ready %v", err, s.Ready())
		}
		cancel()
		<-done
	})
}

func TestOptions(t *testing.T) {
	c := newFakeCloud(0)
	fine := Cluster{Cluster: provisioner.Cluster{Name: "demo"}, Client: c.client, Runner: c}
	noName := fine
	noName.Name = "Demo"
	for name, o := range map[string]Options{
		"no cluster":     {Store: &memoryStore{}},
		"duplicate name": {Store: &memoryStore{}, Clusters: []Cluster{fine, fine}},
		"invalid name":   {Store: &memoryStore{}, Clusters: []Cluster{noName}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	other := fine
	other.Name = "other"
	s, err := New(Options{Store: &memoryStore{}, Clusters: []Cluster{fine, other}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.findCluster(""); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("no name with two clusters: %v", err)
	}
	if got, err := s.findCluster("other"); err != nil || got.Name != "other" {
		t.Errorf("%v, %v", got, err)
	}
}
