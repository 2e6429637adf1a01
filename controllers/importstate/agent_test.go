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

// ksctls is ksctl's agent, as far as it takes exports.
type ksctls struct {
	agentpb.UnimplementedKsctlAgentServer

	mu sync.Mutex
	// taken are the names of the clusters and clouds that came, in their order.
	taken []string
	// refuse says why an entry is not taken.
	refuse func(name string) error
}

func (k *ksctls) Storage(_ context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
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
		k.taken = append(k.taken, c.Name)
	}
	for _, c := range export.Credentials {
		k.taken = append(k.taken, c.Cloud)
	}
	return &agentpb.ResStore{}, nil
}

// came are those that came since it was asked last.
func (k *ksctls) came() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := strings.Join(k.taken, " ")
	k.taken = nil
	return out
}

// listen has the agent listen at an address, until it is stopped.
func (k *ksctls) listen(t *testing.T, address string) (at string, stop func()) {
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

// kept is an address of loopback whose port nobody else on this machine gets while nobody
// listens at it: connections to it are refused.
func kept(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	syscall.CloseOnExec(fd)
	// As net.Listen does, which can have the port, too, then.
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

// sending is an import through an agent.
type sending struct {
	*testing.T
	steps  *Steps
	api    *dynamicfake.FakeDynamicClient
	obj    *v1alpha1.ImportState
	agent  *ksctls
	stop   func()
	events []string
	// persisted are statuses as they were written before something was sent.
	persisted []v1alpha1.ImportStateStatus
	// crash has the process end when it is about to send.
	crash bool
}

func newSending(t *testing.T) *sending {
	t.Helper()
	s := &sending{T: t, agent: &ksctls{}, api: dynamicfake.NewSimpleDynamicClient(clientgoscheme.Scheme)}
	var address string
	address, s.stop = s.agent.listen(t, kept(t))
	s.obj = &v1alpha1.ImportState{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "import", UID: "1"}, Spec: v1alpha1.ImportStateSpec{
		AllowPlaintext: true, ServiceAccountName: "importer", Conflict: v1alpha1.OverwriteConflict,
		Store: &v1alpha1.ImportStore{Agent: &appsv1.AgentEndpoint{Address: address, Plaintext: true}}}}
	s.restart()
	return s
}

// restart is another process: it knows what the status says.
func (s *sending) restart() {
	cache := fake.NewClientBuilder().WithObjects(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "importer"}}).Build()
	s.steps = &Steps{Client: cache, SecretKey: []byte("key"), Clock: clocktesting.NewFakePassiveClock(start),
		Target: &engine.Target{Client: func(*types.NamespacedName) (*engine.Client, error) { return &engine.Client{Interface: s.api}, nil }}}
}

// commit has the source say something else.
func (s *sending) commit(docs ...string) {
	s.obj.Generation++
	s.obj.Spec.RawExportedData = fmt.Appendf(nil, `{"Clusters":[%s],"Credentials":[{"cloud_provider":"civo","civo":{"token":"s3cr3t-of-civo"}}]}`, strings.Join(docs, ","))
}

// start is when all of it happens.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

var errCrash = errors.New("the process ends")

// pass does one reconcile.
func (s *sending) pass(requested bool) reconcile.Outcome {
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

// done does one that has to succeed.
func (s *sending) done(requested bool) string {
	s.Helper()
	out := s.pass(requested)
	d, ok := out.(reconcile.Done)
	if !ok {
		s.Fatalf("got %#v", out)
	}
	return d.Message
}

// retried does one that has to fail, for a reason.
func (s *sending) retried(reason string) string {
	s.Helper()
	out := s.pass(false)
	r, ok := out.(reconcile.Retry)
	if !ok || r.Reason != reason {
		s.Fatalf("got %#v", out)
	}
	return r.Err.Error()
}

// stalled does one that has to fail until somebody changes something.
func (s *sending) stalled(reason string) string {
	s.Helper()
	out := s.pass(false)
	r, ok := out.(reconcile.Stalled)
	if !ok || r.Reason != reason {
		s.Fatalf("got %#v", out)
	}
	return r.Err.Error()
}

// wants compares what came with what should have.
func (s *sending) wants(what, want string) {
	s.Helper()
	if got := s.agent.came(); got != want {
		s.Errorf("%s: %q came, want %q", what, got, want)
	}
}

func TestAnAgentIsSentWhatChanged(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", "a"), document("two", "a"))
	want := "2 states and the credentials of 1 cloud sent to the agent at " + s.obj.Spec.Store.Agent.Address
	if got := s.done(false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.wants("at first", "one two civo")
	for _, row := range s.obj.Status.Clusters {
		if row.Action != v1alpha1.StateSent || !row.Ready || row.Written == "" || row.Writing != "" || !row.Ours {
			t.Errorf("got %+v", row)
		}
	}
	if st := s.obj.Status; st.Agent == "" || st.Store != "" || len(s.persisted) != 1 || s.persisted[0].Clusters[0].Writing == "" || s.persisted[0].Credentials[0].Writing == "" {
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
	s.wants("nothing changed", "")
	s.commit(document("two", "b"), document("one", "a"))
	s.done(false)
	s.wants("one changed", "two")
	s.done(true)
	s.wants("it was asked for", "one two civo")
	s.commit(document("one", "a"))
	if got := s.done(false); !strings.HasSuffix(got, "; no more in the source: 1 state") {
		t.Errorf("got %q", got)
	}
	s.commit(document("one", "a"), document("two", "b"))
	s.done(false)
	s.wants("it went and came back", "")
	s.agent = &ksctls{}
	s.obj.Spec.Store.Agent.Address, _ = s.agent.listen(t, "127.0.0.1:0")
	s.done(false)
	s.wants("another agent", "one two civo")
}

func TestAnAgentThatIsDown(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", "a"))
	s.stop()
	for range 2 {
		if got := s.retried(AgentUnreachableReason); got != "spec.store.agent: the agent can't be reached: connection refused" {
			t.Errorf("got %q", got)
		}
	}
	if len(s.persisted) != 1 {
		t.Errorf("the same was announced %d times", len(s.persisted))
	}
	_, s.stop = s.agent.listen(t, s.obj.Spec.Store.Agent.Address)
	s.restart()
	s.done(false)
	s.wants("it is back", "one civo")
	s.stop()
	s.pass(true) // whose answer is that it failed
	_, s.stop = s.agent.listen(t, s.obj.Spec.Store.Agent.Address)
	s.done(false)
	s.wants("it was asked for while it was down", "one civo")
}

func TestAgentsThatHangKeepNobodyElse(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", "a"))
	s.steps.sending.Store(maxSending)
	if out, want := s.pass(true), (reconcile.Deferred{Until: start.Add(sendAgain)}); out != want || len(s.events)+len(s.persisted) > 0 {
		t.Errorf("got %#v, %v, %v", out, s.events, s.persisted)
	}
	s.steps.sending.Add(-1)
	s.done(true)
	s.wants("there is room", "one civo")
	s.steps.sending.Add(1)
	s.done(false)
	if n := s.steps.sending.Load(); n != maxSending {
		t.Errorf("%d are sending", n)
	}
}

func TestACrashBeforeSending(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", "a"))
	s.done(false)
	s.agent.came()
	s.commit(document("one", "b"))
	s.crash = true
	s.pass(false)
	s.obj.Status = s.persisted[len(s.persisted)-1]
	s.commit(document("one", "a")) // as it is there, unless what was to be sent was
	s.crash = false
	s.restart()
	s.done(false)
	s.wants("nobody knows what it has", "one")
}

func TestAnAgentThatRefusesOne(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", "a"), document("three", "a"), document("two", "a"))
	s.agent.refuse = func(name string) error {
		if name == "three" {
			return status.Error(codes.Internal, "invalid\ncluster type")
		}
		return nil
	}
	if got := s.retried(AgentFailedReason); got != "civo.ha.three.LON1: the agent answers Internal: invalid cluster type" {
		t.Errorf("got %q", got)
	}
	s.wants("the others", "one two civo")
	row := s.obj.Status.Clusters[1]
	if row.Name != "three" || row.Ready || row.Action != v1alpha1.StateCreate || !strings.Contains(row.Message, "invalid cluster type") {
		t.Errorf("got %+v", row)
	}
	s.agent.refuse = nil
	s.done(false)
	s.wants("that one alone", "three")
	s.agent.refuse = func(string) error { return status.Error(codes.PermissionDenied, "who are you") }
	s.commit(document("one", "b"), document("three", "b"))
	if got := s.retried(AgentFailedReason); got != "spec.store.agent: the agent answers PermissionDenied: who are you" {
		t.Errorf("got %q", got)
	}
}

func TestAnAgentIsSentNothingUnasked(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", "a"))
	s.obj.Spec.Conflict = ""
	if got := s.stalled(ConflictReason); !strings.HasPrefix(got, "civo.ha.one.LON1: it goes over what the agent's store has") || !strings.Contains(got, "set spec.conflict to Overwrite") {
		t.Errorf("got %q", got)
	}
	s.obj.Spec.Conflict, s.obj.Spec.DryRun = v1alpha1.OverwriteConflict, true
	if got := s.done(true); !strings.Contains(got, "nothing is sent (spec.dryRun)") || !strings.Contains(got, "would send 1 state and the credentials of 1 cloud") {
		t.Errorf("got %q", got)
	}
	s.wants("neither of them", "")
	s.obj.Spec.DryRun = false
	s.done(false)
	s.wants("it is asked for", "one civo")
	s.obj.Spec.Conflict = v1alpha1.RefuseConflict
	s.done(true)
	s.wants("it stays as it is", "")
	s.commit(document("one", "b"))
	s.stalled(ConflictReason)
	s.commit(`{"ID":"65f000000000000000000001",` + document("one", "b")[1:])
	if got := s.stalled(ExternalStorageReason); !strings.Contains(got, "exported from a MongoDB") {
		t.Errorf("got %q", got)
	}
	s.wants("it is another's", "")
}

func TestAStoreOfAnAgentHasBounds(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", strings.Repeat("x", state.MaxStoreBytes*9/10)))
	if got := s.done(false); !strings.Contains(got, "% of what a ConfigMap can hold") {
		t.Errorf("got %q", got)
	}
	s.wants("most of it", "one civo")
	s.commit(document("one", strings.Repeat("x", state.MaxStoreBytes*9/10)), document("two", strings.Repeat("x", state.MaxStoreBytes/5)))
	s.stalled(StoreFullReason)
	s.wants("too much", "")
}

func TestSecretsOfAnAgent(t *testing.T) {
	s := newSending(t)
	s.commit(document("one", "a"))
	to := s.obj.Spec.Store.Agent
	to.Plaintext, to.SecretRef = false, &fluxmeta.LocalObjectReference{Name: "agent"}
	if got := s.stalled(SecretNotFoundReason); got != "there is no Secret team/agent: make it, or correct spec.store.agent.secretRef" {
		t.Errorf("got %q", got)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "team", "name": "agent"},
		"data": map[string]any{"ca.crt": base64.StdEncoding.EncodeToString([]byte("s3cr3t"))}}}
	if _, err := s.api.Resource(secrets).Namespace("team").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := s.stalled(AgentSecretInvalidReason); got != "the Secret team/agent of spec.store.agent.secretRef: its ca.crt holds no certificate in PEM" {
		t.Errorf("got %q", got)
	}
	s.obj.Spec.Store.Agent = &appsv1.AgentEndpoint{Address: "169.254.169.254:80", Plaintext: true}
	if got := s.stalled(AgentAddressRefusedReason); !strings.Contains(got, "never dialled") {
		t.Errorf("got %q", got)
	}
}
