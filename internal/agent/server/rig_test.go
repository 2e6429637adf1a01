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

// cloud is machines that are none, each with a node. It is a provisioner.
type cloud struct {
	client *fake.Clientset
	// before is called ahead of what a request asks for; an error is answered, unless it is
	// errPretend: then success is.
	before func(ctx context.Context, r provisioner.Request) error

	mu       sync.Mutex
	machines map[uint32]string // sizes
	calls    []string
	made     int
}

var errPretend = errors.New("pretend")

func newCloud(n uint32, objects ...runtime.Object) *cloud {
	c := &cloud{client: fake.NewClientset(objects...), machines: map[uint32]string{}}
	for i := range n {
		c.make(i, "medium")
	}
	c.made = 0
	return c
}

func (c *cloud) make(i uint32, size string) {
	c.machines[i] = size
	c.made++
	name := fmt.Sprintf("demo-vm-wp-%d-%05d", i, c.made)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}}
	if err := c.client.Tracker().Add(node); err != nil {
		panic(err)
	}
}

// Run implements provisioner.Runner.
func (c *cloud) Run(ctx context.Context, r provisioner.Request) ([]provisioner.Worker, error) {
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
				c.make(i, r.Size)
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

// did is what the cloud was asked for, except to list.
func (c *cloud) did() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.calls, "; ")
}

// rig is an agent of one cluster.
type rig struct {
	*Server
	*cloud
	store *memory
	stop  func()
}

// start runs an agent until the test ends or stop is called. It belongs into a bubble.
func start(t *testing.T, c *cloud, store *memory, change ...func(*Options)) *rig {
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
	return &rig{Server: s, cloud: c, store: store, stop: stop}
}

// begin an operation.
func (r *rig) begin(id string, current, desired uint32) (*agentpb.Operation, error) {
	res, err := (&workers{server: r.Server}).Begin(context.Background(), &agentpb.BeginRequest{Id: id, Current: current, Desired: desired, Size: "medium"})
	return res.GetOperation(), err
}

// do an operation, and see how it ended.
func (r *rig) do(t *testing.T, id string, current, desired uint32) record {
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

// list asks as a caller does.
func (r *rig) list(t *testing.T) *agentpb.ListResponse {
	t.Helper()
	res, err := (&workers{server: r.Server}).List(t.Context(), &agentpb.ListRequest{Cluster: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// memory is a Store.
type memory struct {
	mu    sync.Mutex
	data  map[string][]byte
	fails error
	saves int
}

func (m *memory) Load(_ context.Context, cluster string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.data[cluster], m.fails
}

func (m *memory) Save(_ context.Context, cluster string, old, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return m.fails
	}
	if !bytes.Equal(m.data[cluster], old) {
		return ErrTaken
	}
	if m.data == nil {
		m.data = map[string][]byte{}
	}
	m.data[cluster] = data
	m.saves++
	return nil
}

// fail has everything fail from now on; nil: nothing.
func (m *memory) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails = err
}

// pod on a node, changed as a test likes it.
func pod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PodSpec{NodeName: node}}
	for _, f := range change {
		f(p)
	}
	return p
}

// evictions answers evictions: held says until when a pod is kept by a budget; the others are
// gone some seconds later. It returns the names of those that were evicted.
func evictions(c *cloud, held map[string]time.Time) func() []string {
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
		if until, ok := held[e.Name]; ok && time.Now().Before(until) {
			return true, nil, apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
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

// nodes by their names, with what tells of cordoning.
func (c *cloud) nodes(t *testing.T) string {
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
		if n.Annotations[cordonedBy] != "" {
			name += "?"
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
