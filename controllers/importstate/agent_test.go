package importstate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/stacks/state"
)

// fakeAgent is a ksctl agent that only supports imports.
type fakeAgent struct {
	agentpb.UnimplementedKsctlAgentServer

	mu sync.Mutex
	// imported are the names of the received clusters and clouds, in order.
	imported []string
	// refuse returns the error for a cluster; nil accepts it.
	refuse func(name string) error
}

func (k *fakeAgent) Storage(_ context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var export struct {
		Clusters []*struct {
			Name string `json:"cluster_name"`
		}
		Credentials []*struct {
			Cloud string `json:"cloud_provider"`
		}
	}
	if err := json.Unmarshal(r.GetData(), &export); err != nil || r.GetOperation() != agentpb.StorageOperation_IMPORT {
		return nil, status.Error(codes.InvalidArgument, "no export")
	}
	for _, c := range export.Clusters {
		if k.refuse != nil {
			if err := k.refuse(c.Name); err != nil {
				return nil, err
			}
		}
		k.imported = append(k.imported, c.Name)
	}
	for _, c := range export.Credentials {
		k.imported = append(k.imported, c.Cloud)
	}
	return &agentpb.ResStore{}, nil
}

// received returns what the agent has received since the last call.
func (k *fakeAgent) received() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := strings.Join(k.imported, " ")
	k.imported = nil
	return out
}

// listen starts the agent at an address.
func (k *fakeAgent) listen(t *testing.T, address string) (at string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	agentpb.RegisterKsctlAgentServer(server, k)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		server.Stop()
		<-done
	})
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// reservePort returns a loopback address whose port no other process gets. Connections to it are
// refused while no agent listens.
func reservePort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	syscall.CloseOnExec(fd)
	// net.Listen sets the same option, so it can use the port, too.
	err = errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	if err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// importTest tests an ImportState, by default with an agent.
type importTest struct {
	*testing.T
	steps  *Steps
	api    *dynamicfake.FakeDynamicClient
	obj    *v1alpha1.ImportState
	agent  *fakeAgent
	stop   func()
	events []string
	// persisted are the statuses that were written before sending.
	persisted []v1alpha1.ImportStateStatus
	// crash makes the status write fail, like a crash before sending.
	crash bool
}

func newImportTest(t *testing.T) *importTest {
	t.Helper()
	s := &importTest{T: t, agent: &fakeAgent{}, api: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)}
	var address string
	address, s.stop = s.agent.listen(t, reservePort(t))
	s.obj = &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "import",
		UID: "1"}, Spec: v1alpha1.ImportStateSpec{
		AllowPlaintext: true, ServiceAccountName: "importer", Conflict: v1alpha1.OverwriteConflict,
		Store: &v1alpha1.ImportStore{Agent: &appsv1.AgentEndpoint{Address: address, Plaintext: true}}}}
	s.restart()
	return s
}

// restart replaces the Steps: as after a restart, only the status is left.
func (s *importTest) restart() {
	cache := fake.NewClientBuilder().
		WithObjects(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "importer"}}).Build()
	s.steps = &Steps{Client: cache, SecretKey: []byte("key"), Clock: clocktesting.NewFakePassiveClock(start),
		Target: &engine.Target{ClientFor: func(*types.NamespacedName) (*engine.Client, error) {
			return &engine.Client{Interface: s.api}, nil
		}}}
}

// commit changes the content of the source.
func (s *importTest) commit(docs ...string) {
	s.obj.Generation++
	s.obj.Spec.RawExportedData = fmt.Appendf(nil,
		`{"Clusters":[%s],"Credentials":[{"cloud_provider":"civo","civo":{"token":"s3cr3t-of-civo"}}]}`,
		strings.Join(docs, ","))
}

// start is the time of the fake clock.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var errCrash = errors.New("the process ends")

// pass reconciles once.
func (s *importTest) pass(requested bool) reconcile.Outcome {
	s.Helper()
	req := &reconcile.Request[*v1alpha1.ImportState]{Object: s.obj.DeepCopy(), Requested: requested}
	req.Event = func(_, reason, message string) { s.events = append(s.events, reason+": "+message) }
	req.Persist = func(context.Context, string) error {
		s.persisted = append(s.persisted, *req.Object.Status.DeepCopy())
		if s.crash {
			return errCrash
		}
		return nil
	}
	out := s.steps.Reconcile(s.Context(), req)
	s.obj.Status = req.Object.Status
	return out
}

// done reconciles once and expects success. It returns the message.
func (s *importTest) done(requested bool) string {
	s.Helper()
	out := s.pass(requested)
	d, ok := out.(reconcile.Done)
	if !ok {
		s.Fatalf("got %#v", out)
	}
	return d.Message
}

// retried reconciles once and expects a retry with a reason. It returns the error.
func (s *importTest) retried(reason string) string {
	s.Helper()
	out := s.pass(false)
	r, ok := out.(reconcile.Retry)
	if !ok || r.Reason != reason {
		s.Fatalf("got %#v", out)
	}
	return r.Err.Error()
}

// stalled reconciles once and expects a terminal failure with a reason. It returns the error.
func (s *importTest) stalled(reason string) string {
	s.Helper()
	out := s.pass(false)
	r, ok := out.(reconcile.Stalled)
	if !ok || r.Reason != reason {
		s.Fatalf("got %#v", out)
	}
	return r.Err.Error()
}

// wantReceived checks what the agent has received since the last call.
func (s *importTest) wantReceived(step, want string) {
	s.Helper()
	if got := s.agent.received(); got != want {
		s.Errorf("%s: agent received %q, want %q", step, got, want)
	}
}

func TestAgentReceivesOnlyChanges(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", "a"), document("two", "a"))
	want := "2 states and the credentials of 1 cloud sent to the agent at " + s.obj.Spec.Store.Agent.Address
	if got := s.done(false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.wantReceived("first import", "one two civo")
	for _, row := range s.obj.Status.Clusters {
		if row.Action != v1alpha1.StateSent || !row.Ready || row.Written == "" || row.Writing != "" || !row.Ours {
			t.Errorf("got %+v", row)
		}
	}
	if st := s.obj.Status; st.Agent == "" || st.Store != "" || len(s.persisted) != 1 ||
		s.persisted[0].Clusters[0].Writing == "" || s.persisted[0].Credentials[0].Writing == "" {
		t.Errorf("got %+v after %+v", st, s.persisted)
	}
	if !slices.ContainsFunc(s.events, func(e string) bool {
		return strings.HasPrefix(e, "StateSent: sent 2 states and the credentials of 1 cloud")
	}) {
		t.Errorf("events: %v", s.events)
	}
	s.done(false)
	s.restart()
	s.done(false)
	s.wantReceived("no change", "")
	s.commit(document("two", "b"), document("one", "a"))
	s.done(false)
	s.wantReceived("one state changed", "two")
	s.done(true)
	s.wantReceived("requested reconcile", "one two civo")
	s.commit(document("one", "a"))
	if got := s.done(false); !strings.HasSuffix(got, "; no longer in the source: 1 state") {
		t.Errorf("got %q", got)
	}
	s.commit(document("one", "a"), document("two", "b"))
	s.done(false)
	s.wantReceived("removed from and restored in the source", "")
	s.agent = &fakeAgent{}
	s.obj.Spec.Store.Agent.Address, _ = s.agent.listen(t, "127.0.0.1:0")
	s.done(false)
	s.wantReceived("other agent", "one two civo")
}

func TestAgentUnreachable(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", "a"))
	s.stop()
	for range 2 {
		if got := s.retried(v1alpha1.AgentUnreachableReason); got != "spec.store.agent: the agent can't be reached: "+
			"connection refused" {
			t.Errorf("got %q", got)
		}
	}
	if len(s.persisted) != 1 {
		t.Errorf("%d status writes, want 1", len(s.persisted))
	}
	_, s.stop = s.agent.listen(t, s.obj.Spec.Store.Agent.Address)
	s.restart()
	s.done(false)
	s.wantReceived("agent restarted", "one civo")
	s.stop()
	s.pass(true) // fails
	_, s.stop = s.agent.listen(t, s.obj.Spec.Store.Agent.Address)
	s.done(false)
	s.wantReceived("requested while the agent was down", "one civo")
}

func TestConcurrentSendsAreLimited(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", "a"))
	s.steps.sends.Store(maxConcurrentSends)
	if out, want := s.pass(true), (reconcile.Deferred{RequeueAt: start.Add(sendRetryDelay)}); out != want ||
		len(s.events)+len(s.persisted) > 0 {
		t.Errorf("got %#v, %v, %v", out, s.events, s.persisted)
	}
	s.steps.sends.Add(-1)
	s.done(true)
	s.wantReceived("below the limit", "one civo")
	s.steps.sends.Add(1)
	s.done(false)
	if n := s.steps.sends.Load(); n != maxConcurrentSends {
		t.Errorf("%d imports are sending", n)
	}
}

func TestUnconfirmedSendIsRepeated(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", "a"))
	s.done(false)
	s.agent.received()
	s.commit(document("one", "b"))
	s.crash = true
	s.pass(false)
	s.obj.Status = s.persisted[len(s.persisted)-1]
	s.commit(document("one", "a")) // reverted, but the agent may have received "b"
	s.crash = false
	s.restart()
	s.done(false)
	s.wantReceived("unconfirmed send", "one")
}

func TestAgentRejectsOneState(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", "a"), document("three", "a"), document("two", "a"))
	s.agent.refuse = func(name string) error {
		if name == "three" {
			return status.Error(codes.Internal, "invalid\ncluster type")
		}
		return nil
	}
	if got := s.retried(v1alpha1.AgentFailedReason); got != "civo.ha.three.LON1: the agent answers Internal: invalid "+
		"cluster type" {
		t.Errorf("got %q", got)
	}
	s.wantReceived("accepted entries", "one two civo")
	row := s.obj.Status.Clusters[1]
	if row.Name != "three" || row.Ready || row.Action != v1alpha1.StateCreate ||
		!strings.Contains(row.Message, "invalid cluster type") {
		t.Errorf("got %+v", row)
	}
	s.agent.refuse = nil
	s.done(false)
	s.wantReceived("previously rejected entry", "three")
	s.agent.refuse = func(string) error { return status.Error(codes.PermissionDenied, "who are you") }
	s.commit(document("one", "b"), document("three", "b"))
	if got := s.retried(v1alpha1.AgentFailedReason); got != "spec.store.agent: the agent answers PermissionDenied: "+
		"who are you" {
		t.Errorf("got %q", got)
	}
}

func TestAgentReceivesNothingOnConflictOrDryRun(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", "a"))
	s.obj.Spec.Conflict = ""
	if got := s.stalled(v1alpha1.StateConflictReason); !strings.HasPrefix(got,
		"civo.ha.one.LON1: would overwrite the entry in the agent's store") ||
		!strings.Contains(got, "set spec.conflict to Overwrite") {
		t.Errorf("got %q", got)
	}
	s.obj.Spec.Conflict, s.obj.Spec.DryRun = v1alpha1.OverwriteConflict, true
	if got := s.done(true); !strings.Contains(got, "spec.dryRun: would send 1 state and the credentials of 1 cloud") {
		t.Errorf("got %q", got)
	}
	s.wantReceived("conflict and dry run", "")
	s.obj.Spec.DryRun = false
	s.done(false)
	s.wantReceived("overwrite", "one civo")
	s.obj.Spec.Conflict = v1alpha1.RefuseConflict
	s.done(true)
	s.wantReceived("no change with Refuse", "")
	s.commit(document("one", "b"))
	s.stalled(v1alpha1.StateConflictReason)
	s.commit(`{"ID":"65f000000000000000000001",` + document("one", "b")[1:])
	if got := s.stalled(v1alpha1.ExternalStorageReason); !strings.Contains(got, "exported from a MongoDB") {
		t.Errorf("got %q", got)
	}
	s.wantReceived("state from a MongoDB", "")
}

func TestAgentStoreSizeIsBounded(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", strings.Repeat("x", state.MaxStoreBytes*9/10)))
	if got := s.done(false); !strings.Contains(got, "% of the maximum size of a ConfigMap") {
		t.Errorf("got %q", got)
	}
	s.wantReceived("below the maximum size", "one civo")
	s.commit(document("one", strings.Repeat("x", state.MaxStoreBytes*9/10)),
		document("two", strings.Repeat("x", state.MaxStoreBytes/5)))
	s.stalled(v1alpha1.StoreFullReason)
	s.wantReceived("above the maximum size", "")
}

func TestAgentSecretErrors(t *testing.T) {
	s := newImportTest(t)
	s.commit(document("one", "a"))
	to := s.obj.Spec.Store.Agent
	to.Plaintext, to.SecretRef = false, &fluxmeta.LocalObjectReference{Name: "agent"}
	if got := s.stalled(appsv1.SecretNotFoundReason); got != "Secret team/agent does not exist: create it, or "+
		"correct spec.store.agent.secretRef" {
		t.Errorf("got %q", got)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"namespace": "team", "name": "agent"},
		"data":     map[string]any{"ca.crt": base64.StdEncoding.EncodeToString([]byte("s3cr3t"))}}}
	if _, err := s.api.Resource(secretGVR).Namespace("team").
		Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := s.stalled(v1alpha1.AgentSecretInvalidReason); got != "Secret team/agent of spec.store.agent.secretRef: "+
		"key ca.crt holds no PEM certificate" {
		t.Errorf("got %q", got)
	}
	s.obj.Spec.Store.Agent = &appsv1.AgentEndpoint{Address: "169.254.169.254:80", Plaintext: true}
	if got := s.stalled(v1alpha1.AgentAddressRefusedReason); !strings.Contains(got,
		"link-local and multicast addresses are not allowed") {
		t.Errorf("got %q", got)
	}
}
