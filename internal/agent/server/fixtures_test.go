package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// fakeCloud is a provisioner with fake machines, each with a node.
type fakeCloud struct {
	client *fake.Clientset
	// before is called before a request is executed. The request returns its error, or success
	// without any effect if the error is errPretend.
	before func(ctx context.Context, r provisioner.Request) error

	mu       sync.Mutex
	machines map[uint32]string // sizes
	calls    []string
	created  int
}

var errPretend = errors.New("pretend")

func newFakeCloud(n uint32, objects ...runtime.Object) *fakeCloud {
	c := &fakeCloud{client: fake.NewClientset(objects...), machines: map[uint32]string{}}
	for i := range n {
		c.addMachine(i, "medium")
	}
	c.created = 0
	return c
}

func (c *fakeCloud) addMachine(i uint32, size string) {
	c.machines[i] = size
	c.created++
	name := fmt.Sprintf("demo-vm-wp-%d-%05d", i, c.created)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	if err := c.client.Tracker().Add(node); err != nil {
		panic(err)
	}
}

// Run implements provisioner.Runner.
func (c *fakeCloud) Run(ctx context.Context, r provisioner.Request) ([]provisioner.Worker, error) {
	if r.Operation != provisioner.List {
		c.mu.Lock()
		c.calls = append(c.calls, fmt.Sprintf("%s %d %d %s", r.Operation, r.From, r.Desired, r.Size))
		c.mu.Unlock()
	}
	if c.before != nil {
		if err := c.before(ctx, r); errors.Is(err, errPretend) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []provisioner.Worker{}
	switch r.Operation {
	case provisioner.List:
		for i, size := range c.machines {
			out = append(out, provisioner.Worker{Index: i, Name: r.Cluster.WorkerName(i), Size: size})
		}
		slices.SortFunc(out, func(a, b provisioner.Worker) int { return int(a.Index) - int(b.Index) })
	case provisioner.Create:
		for i := r.From; i < r.Desired; i++ {
			if _, ok := c.machines[i]; !ok {
				c.addMachine(i, r.Size)
			}
		}
	case provisioner.Delete:
		for i := range c.machines {
			if i >= r.Desired {
				delete(c.machines, i)
			}
		}
	}
	return out, nil
}

// requests returns all requests except List.
func (c *fakeCloud) requests() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.calls, "; ")
}

// agentTest is an agent with one cluster.
type agentTest struct {
	*Server
	*fakeCloud
	store *memoryStore
	stop  func()
}

// start runs an agent until the test ends or stop is called. Call it in a synctest bubble.
func start(t *testing.T, c *fakeCloud, store *memoryStore, change ...func(*Options)) *agentTest {
	t.Helper()
	o := Options{Store: store, Log: logr.Discard(),
		Clusters: []Cluster{{Cluster: provisioner.Cluster{Name: "demo"}, Client: c.client, Runner: c}}}
	for _, f := range change {
		f(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	if err := s.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &agentTest{Server: s, fakeCloud: c, store: store, stop: stop}
}

// begin starts an operation.
func (r *agentTest) begin(id string, current, desired uint32) (*agentpb.Operation, error) {
	res, err := (&workersServer{server: r.Server}).Begin(context.Background(),
		&agentpb.BeginRequest{Id: id, Current: current, Desired: desired, Size: "medium"})
	return res.GetOperation(), err
}

// execute runs an operation and returns its result.
func (r *agentTest) execute(t *testing.T, id string, current, desired uint32) record {
	t.Helper()
	if _, err := r.begin(id, current, desired); err != nil {
		t.Fatal(err)
	}
	ended, err := r.clusters["demo"].await(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return ended
}

// list calls the List method of the gRPC service.
func (r *agentTest) list(t *testing.T) *agentpb.ListResponse {
	t.Helper()
	res, err := (&workersServer{server: r.Server}).List(t.Context(), &agentpb.ListRequest{Cluster: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// memoryStore is a Store in memory.
type memoryStore struct {
	mu    sync.Mutex
	data  map[string][]byte
	err   error
	saves int
}

func (m *memoryStore) Load(_ context.Context, cluster string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[cluster], m.err
}

func (m *memoryStore) Save(_ context.Context, cluster string, old, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if !bytes.Equal(m.data[cluster], old) {
		return ErrConflict
	}
	if m.data == nil {
		m.data = map[string][]byte{}
	}
	m.data[cluster] = data
	m.saves++
	return nil
}

// setError makes every call fail with err; nil makes them succeed.
func (m *memoryStore) setError(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// pod returns a pod on a node.
func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: node}}
	for _, f := range change {
		f(p)
	}
	return p
}

// fakeEvictions handles evictions: a disruption budget blocks the pods in blocked until the given
// times; every other pod is deleted. The returned function lists the evicted pods.
func fakeEvictions(c *fakeCloud, blocked map[string]time.Time) func() []string {
	var mu sync.Mutex
	var out []string
	c.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := a.(clienttesting.CreateAction)
		if !ok || a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		e := create.GetObject().(*policyv1.Eviction)
		mu.Lock()
		defer mu.Unlock()
		if until, ok := blocked[e.Name]; ok && time.Now().Before(until) {
			return true, nil,
				apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		out = append(out, e.Name)
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		return true, nil, c.client.Tracker().Delete(pods, e.Namespace, e.Name)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(out)
		return out
	}
}

// nodes returns the names of the nodes. "!" marks a cordoned node, "?" the annotation of the agent.
func (c *fakeCloud) nodes(t *testing.T) string {
	t.Helper()
	list, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range list.Items {
		name := n.Name
		if n.Spec.Unschedulable {
			name += "!"
		}
		if n.Annotations[cordonedByAnnotation] != "" {
			name += "?"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
