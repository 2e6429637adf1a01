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

func TestUpAndDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newCloud(2), &memory{})
		if got := r.do(t, "up", 2, 4); got.State != succeeded || got.Message != "there are 4 workers" {
			t.Errorf("%+v", got)
		}
		if got := r.do(t, "down", 4, 1); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if got := r.do(t, "same", 1, 1); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if got := r.did(); got != "Create 2 4 medium; Delete 4 1 medium" {
			t.Errorf("did %s", got)
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001" {
			t.Errorf("nodes %s", got)
		}
		res := r.list(t)
		if len(res.Workers) != 1 || res.Workers[0].Name != "demo-vm-wp-0" || res.Workers[0].Node != "demo-vm-wp-0-00001" || res.Workers[0].Size != "medium" {
			t.Errorf("workers %v", res.Workers)
		}
		if res.Operation.Id != "same" || res.Operation.Ended == nil {
			t.Errorf("operation %v", res.Operation)
		}
	})
}

func TestWhatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		request *agentpb.BeginRequest
		code    codes.Code
	}{
		"no id":              {&agentpb.BeginRequest{Current: 2, Desired: 3, Size: "m"}, codes.InvalidArgument},
		"an id with a space": {&agentpb.BeginRequest{Id: "a b", Current: 2, Desired: 3, Size: "m"}, codes.InvalidArgument},
		"a long id":          {&agentpb.BeginRequest{Id: strings.Repeat("a", 65), Current: 2, Desired: 3, Size: "m"}, codes.InvalidArgument},
		"no size":            {&agentpb.BeginRequest{Id: "a", Current: 2, Desired: 3}, codes.InvalidArgument},
		"a size like a flag": {&agentpb.BeginRequest{Id: "a", Current: 2, Desired: 3, Size: "--noWP"}, codes.InvalidArgument},
		"too many":           {&agentpb.BeginRequest{Id: "a", Current: 2, Desired: 1001, Size: "m"}, codes.InvalidArgument},
		"another cluster":    {&agentpb.BeginRequest{Id: "a", Cluster: "other", Current: 2, Desired: 3, Size: "m"}, codes.NotFound},
		"fewer than known":   {&agentpb.BeginRequest{Id: "a", Current: 3, Desired: 4, Size: "m"}, codes.Aborted},
		"more than known":    {&agentpb.BeginRequest{Id: "a", Current: 1, Desired: 2, Size: "m"}, codes.Aborted},
		"less, as it seems":  {&agentpb.BeginRequest{Id: "a", Current: 0, Desired: 1, Size: "m"}, codes.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newCloud(2), &memory{})
				_, err := (&workers{server: r.Server}).Begin(t.Context(), c.request)
				if status.Code(err) != c.code {
					t.Errorf("%v, want %s", err, c.code)
				}
				if r.did() != "" || r.store.saves != 0 {
					t.Errorf("did %q, %d writes", r.did(), r.store.saves)
				}
			})
		})
	}
}

// slow has everything but listing take a minute.
func slow(c *cloud) {
	c.before = func(ctx context.Context, r provisioner.Request) error {
		if r.Operation == provisioner.List {
			return nil
		}
		select {
		case <-ctx.Done():
			return &provisioner.ProgramError{Fault: provisioner.Stopped, Message: "was killed", Err: ctx.Err()}
		case <-time.After(time.Minute):
			return nil
		}
	}
}

func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(2)
		slow(c)
		r := start(t, c, &memory{})
		if op, err := r.begin("a", 2, 3); err != nil || op.State != agentpb.Operation_RUNNING {
			t.Fatalf("%v, %v", op, err)
		}
		synctest.Wait()
		if op, err := r.begin("a", 2, 3); err != nil || op.State != agentpb.Operation_RUNNING || op.Message != "making 1 machines of size medium" {
			t.Errorf("the same again: %v, %v", op, err)
		}
		if _, err := r.begin("a", 2, 4); status.Code(err) != codes.InvalidArgument {
			t.Errorf("another of the same id: %v", err)
		}
		if _, err := r.begin("b", 2, 4); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("another: %v", err)
		}
		if op := r.list(t).Operation; op.Id != "a" || op.State != agentpb.Operation_RUNNING {
			t.Errorf("listed: %v", op)
		}
		if got := r.do(t, "a", 2, 3); got.State != succeeded {
			t.Errorf("%+v", got)
		}
		if op, err := r.begin("a", 2, 3); err != nil || op.State != agentpb.Operation_SUCCEEDED {
			t.Errorf("after its end: %v, %v", op, err)
		}
		if got := r.did(); got != "Create 2 3 medium" {
			t.Errorf("did %s", got)
		}
	})
}

func TestManyWhoAskAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(2)
		slow(c)
		r := start(t, c, &memory{})
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

func TestTheLastOnesAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newCloud(2), &memory{})
		for i := range 2 * remembered {
			r.do(t, fmt.Sprintf("op-%d", i), 2, 2)
		}
		if _, err := r.begin(fmt.Sprintf("op-%d", remembered), 1, 5); status.Code(err) != codes.InvalidArgument {
			t.Errorf("the oldest that is remembered: %v", err)
		}
		if op, err := r.begin("op-0", 2, 2); err != nil || op.State != agentpb.Operation_SUCCEEDED {
			t.Errorf("one that is not: %v, %v", op, err)
		}
		var b book
		if err := json.Unmarshal(r.store.data["demo"], &b); err != nil || len(b.Operations) != remembered {
			t.Errorf("%d are written down, %v", len(b.Operations), err)
		}
	})
}

func TestHowItFails(t *testing.T) {
	quota := &provisioner.Error{Code: "Quota", Class: provisioner.OutOfResources, Message: "no more machines"}
	for name, c := range map[string]struct {
		verb    provisioner.Verb
		err     error
		panics  bool
		desired uint32
		failure string
		message string
	}{
		"no more":          {verb: provisioner.Create, err: quota, desired: 4, failure: "OUT_OF_RESOURCES", message: "there are 2 workers, and there were to be 4: Quota: no more machines"},
		"broken":           {verb: provisioner.Create, err: errors.New("broken"), desired: 4, failure: "OTHER", message: "broken"},
		"pretended":        {verb: provisioner.Create, err: errPretend, desired: 4, failure: "OTHER", message: "the provisioner answered that the machines are made, and there are 2 workers, not 4"},
		"pretended to go":  {verb: provisioner.Delete, err: errPretend, desired: 1, failure: "OTHER", message: "the provisioner answered that the machines are gone, and there are 2 workers, not 1"},
		"can't be deleted": {verb: provisioner.Delete, err: errors.New("broken"), desired: 1, failure: "OTHER", message: "broken"},
		"panics":           {verb: provisioner.Create, panics: true, desired: 4, failure: "OTHER", message: "the agent itself is at fault"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := newCloud(2)
				cl.before = func(_ context.Context, r provisioner.Request) error {
					if r.Operation != c.verb {
						return nil
					}
					if c.panics {
						panic("at the disco")
					}
					return c.err
				}
				r := start(t, cl, &memory{})
				got := r.do(t, "a", 2, c.desired)
				if got.State != failed || got.Failure != c.failure || !strings.Contains(got.Message, c.message) {
					t.Errorf("%+v", got)
				}
				if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002" {
					t.Errorf("nodes %s", got)
				}
				cl.before = nil
				if got := r.do(t, "b", 2, 3); got.State != succeeded {
					t.Errorf("the next: %+v", got)
				}
			})
		})
	}
}

func TestWhereHalfWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(2)
		c.before = func(_ context.Context, r provisioner.Request) error {
			if r.Operation == provisioner.Create {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.make(2, "medium")
				return &provisioner.Error{Code: "Quota", Class: provisioner.OutOfResources, Message: "no more"}
			}
			return nil
		}
		r := start(t, c, &memory{})
		if got := r.do(t, "a", 2, 5); got.Failure != "OUT_OF_RESOURCES" || !strings.HasPrefix(got.Message, "there are 3 workers, and there were to be 5") {
			t.Errorf("%+v", got)
		}
	})
}

func TestWhenNothingCanBeWrittenDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newCloud(2), &memory{})
		r.store.fail(errors.New("the API server is away"))
		if _, err := r.begin("a", 2, 3); status.Code(err) != codes.Unavailable {
			t.Errorf("%v", err)
		}
		if r.did() != "" {
			t.Errorf("did %s", r.did())
		}
		r.store.fail(nil)
		r.cloud.before = func(_ context.Context, q provisioner.Request) error {
			if q.Operation == provisioner.Create {
				r.store.fail(errors.New("the API server is away"))
				time.AfterFunc(time.Minute, func() { r.store.fail(nil) })
			}
			return nil
		}
		began := time.Now()
		if got := r.do(t, "a", 2, 3); got.State != succeeded || time.Since(began) < time.Minute {
			t.Errorf("%+v after %s", got, time.Since(began))
		}
	})
}

func TestAnotherAgentHasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newCloud(2), &memory{})
		other, err := json.Marshal(book{Operations: []record{{ID: "x", From: 1, Desired: 2, Size: "medium", State: succeeded}}})
		if err != nil {
			t.Fatal(err)
		}
		r.store.data = map[string][]byte{"demo": other}
		if _, err := r.begin("a", 2, 3); status.Code(err) != codes.Aborted {
			t.Errorf("%v", err)
		}
		if op, err := r.begin("x", 1, 2); err != nil || op.State != agentpb.Operation_SUCCEEDED {
			t.Errorf("what it wrote: %v, %v", op, err)
		}
		if got := r.do(t, "a", 2, 3); got.State != succeeded {
			t.Errorf("%+v", got)
		}
	})
}

// begun is a store with an operation that runs.
func begun(t *testing.T, r record) *memory {
	t.Helper()
	r.ID, r.State, r.Size = "a", running, "medium"
	data, err := json.Marshal(book{Operations: []record{r}})
	if err != nil {
		t.Fatal(err)
	}
	return &memory{data: map[string][]byte{"demo": data}}
}

func TestWhatWasBegunBeforeIsDoneOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before  record
		there   uint32
		state   string
		did     string
		nodes   int
		message string
	}{
		"up, not begun":       {record{From: 2, Desired: 4}, 2, succeeded, "Create 2 4 medium", 4, ""},
		"up, half":            {record{From: 2, Desired: 4}, 3, succeeded, "Create 3 4 medium", 4, ""},
		"up, done":            {record{From: 2, Desired: 4}, 4, succeeded, "", 4, ""},
		"up, and more came":   {record{From: 2, Desired: 4}, 7, failed, "", 7, "somebody else"},
		"up, and some went":   {record{From: 2, Desired: 4}, 1, succeeded, "Create 1 4 medium", 4, ""},
		"down, not begun":     {record{From: 4, Desired: 2}, 4, succeeded, "Delete 4 2 medium", 2, ""},
		"down, half":          {record{From: 4, Desired: 2}, 3, succeeded, "Delete 3 2 medium", 2, ""},
		"down, done":          {record{From: 4, Desired: 2}, 2, succeeded, "", 2, ""},
		"down, and more went": {record{From: 4, Desired: 2}, 1, failed, "", 1, "somebody else"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, newCloud(c.there), begun(t, c.before))
				got, err := r.clusters["demo"].await(t.Context(), "a")
				if err != nil || got.State != c.state || !strings.Contains(got.Message, c.message) {
					t.Errorf("%+v, %v", got, err)
				}
				if got := r.did(); got != c.did {
					t.Errorf("did %q, want %q", got, c.did)
				}
				if got := strings.Fields(r.nodes(t)); len(got) != c.nodes {
					t.Errorf("nodes %v", got)
				}
			})
		})
	}
}

func TestNodesThatAnInterruptedOperationLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(4)
		delete(c.machines, 3) // the agent ended before its node went
		leaving := []nodeRef{{"demo-vm-wp-3-00004", "uid-demo-vm-wp-3-00004"}, {"demo-vm-wp-2-00003", "uid-demo-vm-wp-2-00003"}}
		r := start(t, c, begun(t, record{From: 4, Desired: 3, Leaving: leaving}))
		if got, err := r.clusters["demo"].await(t.Context(), "a"); err != nil || got.State != succeeded {
			t.Errorf("%+v, %v", got, err)
		}
		if got := r.nodes(t); got != "demo-vm-wp-0-00001 demo-vm-wp-1-00002 demo-vm-wp-2-00003" {
			t.Errorf("nodes %s: one whose machine is there has to stay", got)
		}
	})
}

func TestTheEndOfTheAgent(t *testing.T) {
	for name, within := range map[string]time.Duration{"kills what takes long": 10 * time.Second, "waits for what ends": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, store := newCloud(2), &memory{}
				slow(c)
				r := start(t, c, store, func(o *Options) { o.StopWithin = within })
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
					t.Errorf("who waits is told %v", err)
				}
				if _, err := r.begin("b", 2, 3); status.Code(err) != codes.Unavailable {
					t.Errorf("who begins is told %v", err)
				}
				again := start(t, c, store)
				if got := again.do(t, "a", 2, 3); got.State != succeeded {
					t.Errorf("%+v", got)
				}
				if c.made != 1 || len(c.machines) != 3 {
					t.Errorf("%d machines were made, and there are %d", c.made, len(c.machines))
				}
			})
		})
	}
}

func TestItReadsWhatWasBegunBeforeAnythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, store := newCloud(2), &memory{}
		store.fail(errors.New("the API server is away"))
		time.AfterFunc(time.Minute, func() { store.fail(nil) })
		s, err := New(Options{Store: store, Clusters: []Cluster{{Cluster: provisioner.Cluster{Name: "demo"}, Client: c.client, Runner: c}}})
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
		if _, err := (&workers{server: s}).List(ctx, &agentpb.ListRequest{}); status.Code(err) != codes.Unavailable || s.Ready() {
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
	c := newCloud(0)
	fine := Cluster{Cluster: provisioner.Cluster{Name: "demo"}, Client: c.client, Runner: c}
	noRunner, noClient, noName := fine, fine, fine
	noRunner.Runner, noClient.Client, noName.Name = nil, nil, "Demo"
	for name, o := range map[string]Options{
		"no cluster": {Store: &memory{}}, "no store": {Clusters: []Cluster{fine}}, "twice": {Store: &memory{}, Clusters: []Cluster{fine, fine}},
		"no runner": {Store: &memory{}, Clusters: []Cluster{noRunner}}, "no client": {Store: &memory{}, Clusters: []Cluster{noClient}},
		"no name": {Store: &memory{}, Clusters: []Cluster{noName}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	other := fine
	other.Name = "other"
	s, err := New(Options{Store: &memory{}, Clusters: []Cluster{fine, other}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.cluster(""); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("which of two: %v", err)
	}
	if got, err := s.cluster("other"); err != nil || got.Name != "other" {
		t.Errorf("%v, %v", got, err)
	}
}
