package state_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/stacks/state"
)

// fakeAgent handles an export like ksctl's agent: it decodes the export, and overwrites the
// states in the store of a namespace.
type fakeAgent struct {
	agentpb.UnimplementedKsctlAgentServer

	ns string

	mu sync.Mutex
	// received are the keys of the received states, and the clouds of the credentials.
	received []string
	// before is called before an export is stored.
	before func(ctx context.Context, data []byte) error
}

func (a *fakeAgent) Storage(ctx context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.before != nil {
		if err := a.before(ctx, r.GetData()); err != nil {
			return nil, err
		}
	}
	var export struct {
		Clusters    []json.RawMessage
		Credentials []json.RawMessage
	}
	if err := json.Unmarshal(r.GetData(), &export); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	for _, doc := range export.Clusters {
		var id struct {
			Cloud  string `json:"cloud_provider"`
			Type   string `json:"cluster_type"`
			Name   string `json:"cluster_name"`
			Region string `json:"region"`
		}
		if err := json.Unmarshal(doc, &id); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		key := strings.Join([]string{id.Cloud, id.Type, id.Name, id.Region}, ".")
		if err := a.put(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns,
			Name: state.StoreConfigMap}}, func(o client.Object) {
			cm := o.(*corev1.ConfigMap)
			cm.BinaryData = withEntry(cm.BinaryData, key, doc)
		}); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		a.received = append(a.received, key)
	}
	for _, doc := range export.Credentials {
		var of *struct {
			Cloud string `json:"cloud_provider"`
		}
		if err := json.Unmarshal(doc, &of); err != nil || of == nil {
			continue
		}
		if err := a.put(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns,
			Name: state.StoreSecret}}, func(o client.Object) {
			secret := o.(*corev1.Secret)
			secret.Data = withEntry(secret.Data, of.Cloud, doc)
		}); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		a.received = append(a.received, of.Cloud)
	}
	return &agentpb.ResStore{}, nil
}

// put changes an object of the store, or creates it.
func (a *fakeAgent) put(ctx context.Context, o client.Object, change func(client.Object)) error {
	err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
	change(o)
	if apierrors.IsNotFound(err) {
		return h.ControlPlane.Client().Create(ctx, o)
	}
	if err != nil {
		return err
	}
	return h.ControlPlane.Client().Update(ctx, o)
}

func withEntry(data map[string][]byte, key string, value []byte) map[string][]byte {
	if data == nil {
		data = map[string][]byte{}
	}
	data[key] = value
	return data
}

// popReceived returns the entries since its last call, sorted.
func (a *fakeAgent) popReceived() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.Sorted(slices.Values(a.received))
	a.received = nil
	return out
}

// setBefore sets the function that is called before an export is stored.
func (a *fakeAgent) setBefore(before func(ctx context.Context, data []byte) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before = before
}

// listen serves the agent at an address until the spec ends.
func (a *fakeAgent) listen(address string, options ...grpc.ServerOption) (at string) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	server := grpc.NewServer(options...)
	agentpb.RegisterKsctlAgentServer(server, a)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	DeferCleanup(func() {
		server.Stop()
		Expect(<-done).To(Or(Succeed(), MatchError(grpc.ErrServerStopped)), "it may be stopped before it serves")
	})
	return listener.Addr().String()
}

// newAgentImport returns an ImportState of the source "src" through an agent.
func newAgentImport(ns string, to appsv1.AgentEndpoint) *v1alpha1.ImportState {
	return newImport(ns, func(s *v1alpha1.ImportStateSpec) {
		s.Store, s.Conflict = &v1alpha1.ImportStore{Agent: &to}, v1alpha1.OverwriteConflict
		s.RetryInterval = &metav1.Duration{Duration: time.Second}
	})
}

// lastAppliedRevision returns a function for Eventually with the last applied revision.
func lastAppliedRevision(ctx context.Context, in *v1alpha1.ImportState) func() (string, error) {
	return func() (string, error) {
		_, err := importReady(ctx, in)()
		return in.Status.LastAppliedRevision, err
	}
}

var _ = Describe("An ImportState through an agent", func() {
	It("sends every format unchanged, and again only on a change or a request", func(ctx SpecContext) {
		ns := namespace(ctx)
		agent := &fakeAgent{ns: ns}
		address := agent.listen("127.0.0.1:0")
		files, want, all := map[string]string{}, []any{}, []string{"azure", "civo"}
		for _, name := range []string{"v1_0_civo_ha_k3s", "v1_2_0_aws_managed", "v2_0_azure_selfmanaged",
			"v2_aws_managed", "v1_azure_ha_k3s", "v1_local_managed"} {
			data := storeFixture(name + ".json")
			files["clusters/"+name+".json"] = string(data)
			parsed, err := state.Parse(name, data)
			Expect(err).NotTo(HaveOccurred())
			for _, c := range parsed.Clusters {
				want, all = append(want, canonical(c.JSON())), append(all, c.ID.Key())
			}
		}
		slices.Sort(all)
		publish(ctx, ns, "main@sha1:1", files)
		in := newAgentImport(ns, appsv1.AgentEndpoint{Address: address, Plaintext: true})
		in.Spec.Conflict = ""
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("False StateConflict: "), ContainSubstring("set spec.conflict to Overwrite")))
		Expect(agent.popReceived()).To(BeEmpty())

		By("conflict: Overwrite")
		patch(ctx, in, `{"spec":{"conflict":"Overwrite"}}`)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 6 states and the credentials of 2 clouds sent to the " +
				"agent at " + address))
		Expect(agent.popReceived()).To(Equal(all))
		var got []string
		for _, doc := range stored(ctx, ns) {
			got = append(got, doc)
		}
		Expect(got).To(ConsistOf(want...))
		for _, row := range in.Status.Clusters {
			Expect(row.Action).To(Equal(v1alpha1.StateSent), row.Key)
			Expect(row.Ready).To(BeTrue(), row.Key)
		}

		By("restarting the controller, and publishing the same files as another revision")
		restart()
		publish(ctx, ns, "main@sha1:2", files)
		Eventually(ctx, lastAppliedRevision(ctx, in), soon).Should(Equal("main@sha1:2"))
		Expect(agent.popReceived()).To(BeEmpty())

		By("changing one state")
		const changed = "clusters/v2_aws_managed.json"
		files[changed] = strings.Replace(files[changed], "{", `{"words":"another",`, 1)
		publish(ctx, ns, "main@sha1:3", files)
		Eventually(ctx, lastAppliedRevision(ctx, in), soon).Should(Equal("main@sha1:3"))
		Expect(agent.popReceived()).To(HaveExactElements(HavePrefix("aws.managed.")))

		By("requesting a reconcile")
		patch(ctx, in, fmt.Sprintf(`{"metadata":{"annotations":{%q:"again"}}}`, appsv1.RequestedAtAnnotation))
		Eventually(ctx, func() (string, error) {
			_, err := importReady(ctx, in)()
			return in.Status.LastHandledReconcileAt, err
		}, soon).Should(Equal("again"))
		Expect(agent.popReceived()).To(Equal(all))
	})

	It("authenticates the agent by its certificate and itself by a token, and reacts to changes of "+
		"the Secret", func(ctx SpecContext) {
		ns := namespace(ctx)
		agent := &fakeAgent{ns: ns}
		certificate, key, err := cert.GenerateSelfSignedCertKey("agent.example", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		Expect(err).NotTo(HaveOccurred())
		other, _, err := cert.GenerateSelfSignedCertKey("agent.example", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		Expect(err).NotTo(HaveOccurred())
		pair, err := tls.X509KeyPair(certificate, key)
		Expect(err).NotTo(HaveOccurred())
		token := scanner.AddSecret("t0k3n-of-the-agent")
		asks := grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			next grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			if shown := strings.Join(md.Get("authorization"), " "); shown != "Bearer "+token {
				return nil, status.Error(codes.Unauthenticated, "nobody knows "+shown)
			}
			return next(ctx, req)
		})
		address := agent.listen("127.0.0.1:0", asks,
			grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair},
				MinVersion: tls.VersionTLS13})))
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": document("demo", "one")})
		in := newAgentImport(ns,
			appsv1.AgentEndpoint{Address: address, SecretRef: &fluxmeta.LocalObjectReference{Name: "agent"},
				ServerName: "agent.example"})
		in.Spec.RetryInterval = &metav1.Duration{Duration: time.Hour} // the Secret triggers a reconcile
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("False SecretNotFound: Secret " + ns +
				"/agent does not exist: create it, or correct spec.store.agent.secretRef"))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "agent"},
			StringData: map[string]string{"token": scanner.AddSecret("an0ther-t0k3n")}}
		create(ctx, secret)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("False AgentSecretInvalid: Secret " + ns +
				"/agent of spec.store.agent.secretRef: key ca.crt is missing"))
		patch(ctx, secret, fmt.Sprintf(`{"stringData":{"ca.crt":%q}}`, other))
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("False AgentUnreachable: spec.store.agent: the agent can't be reached: its certificate is " +
				"signed by an authority that ca.crt does not contain"))
		patch(ctx, secret, fmt.Sprintf(`{"stringData":{"ca.crt":%q}}`, certificate))
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("False AgentFailed: spec.store.agent: the agent " +
				"answers Unauthenticated: nobody knows Bearer …"))
		patch(ctx, secret, fmt.Sprintf(`{"stringData":{"token":%q}}`, token))
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 1 state sent to the agent at " + address))
		Expect(agent.popReceived()).To(Equal([]string{keyOf("demo")}))
	})

	It("reports an agent that is down, slow or rejects a state, still sends the other states, and leaks "+
		"no secret", func(ctx SpecContext) {
		ns := namespace(ctx)
		agent := &fakeAgent{ns: ns}
		address, err := cluster.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		publish(ctx, ns, "main@sha1:1",
			map[string]string{"clusters/a.json": document("demo", "one"),
				"clusters/b.json": string(fixture("v1_azure_ha_k3s.json"))})
		in := newAgentImport(ns, appsv1.AgentEndpoint{Address: address, Plaintext: true})
		in.Spec.Credentials = v1alpha1.SkipCredentials
		create(ctx, in)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("False AgentUnreachable: spec.store.agent: the agent can't be reached: connection refused"))

		By("an agent that exceeds the timeout")
		agent.setBefore(func(ctx context.Context, _ []byte) error {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		})
		patch(ctx, in, `{"spec":{"timeout":"1s"}}`)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(HavePrefix("False AgentUnreachable: "), "the new timeout is in effect")
		agent.listen(address)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("False AgentUnreachable: spec.store.agent: the " +
				"agent can't be reached: it does not answer in time"))

		By("a longer timeout: states without a response in time are sent again")
		agent.setBefore(func(context.Context, []byte) error { return status.Error(codes.Internal, "not yet") })
		patch(ctx, in, `{"spec":{"timeout":null}}`)
		Eventually(ctx, importReady(ctx, in), soon).Should(ContainSubstring("the agent answers Internal: not yet"))

		By("an agent that rejects a state and quotes it")
		agent.setBefore(func(_ context.Context, data []byte) error {
			if _, secret, ok := strings.Cut(string(data), `"ssh_key_pair":`); ok {
				return status.Errorf(codes.Internal, "can't take %s", secret)
			}
			return nil
		})
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(HavePrefix("False AgentFailed: azure.ha."),
				HaveSuffix("the agent answers Internal: the message is omitted because it quotes secrets of the "+
					"request")))
		Expect(agent.popReceived()).To(Equal([]string{keyOf("demo")}))
		agent.setBefore(func(_ context.Context, data []byte) error {
			if strings.Contains(string(data), "azure") {
				return status.Error(codes.Internal, "no\nroom "+strings.Repeat("left ", 1000))
			}
			return nil
		})
		Eventually(ctx, importReady(ctx, in), soon).
			Should(And(ContainSubstring("the agent answers Internal: no room left left"), HaveSuffix("…"),
				Satisfy(func(s string) bool { return len(s) < 450 })))

		By("an agent that accepts the state")
		agent.setBefore(nil)
		Eventually(ctx, importReady(ctx, in), soon).
			Should(Equal("True ReconciliationSucceeded: 2 states sent to the agent at " + address))
		Expect(agent.popReceived()).To(HaveExactElements(HavePrefix("azure.ha.")))
	})
})
