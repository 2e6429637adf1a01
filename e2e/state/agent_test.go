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

// ksctlAgent does with an export what ksctl's agent does: it is decoded, and written into
// the store of a namespace over whatever is there.
type ksctlAgent struct {
	agentpb.UnimplementedKsctlAgentServer

	ns string

	mu sync.Mutex
	// taken are the keys of what came, and the clouds.
	taken []string
	// first is done before anything is taken.
	first func(ctx context.Context, data []byte) error
}

func (a *ksctlAgent) Storage(ctx context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first != nil {
		if err := a.first(ctx, r.GetData()); err != nil {
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
		if err := a.put(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: state.StoreConfigMap}}, func(o client.Object) {
			cm := o.(*corev1.ConfigMap)
			cm.BinaryData = with(cm.BinaryData, key, doc)
		}); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		a.taken = append(a.taken, key)
	}
	for _, doc := range export.Credentials {
		var of *struct {
			Cloud string `json:"cloud_provider"`
		}
		if err := json.Unmarshal(doc, &of); err != nil || of == nil {
			continue
		}
		if err := a.put(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: state.StoreSecret}}, func(o client.Object) {
			secret := o.(*corev1.Secret)
			secret.Data = with(secret.Data, of.Cloud, doc)
		}); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		a.taken = append(a.taken, of.Cloud)
	}
	return &agentpb.ResStore{}, nil
}

// put changes an object of the store, or makes it.
func (a *ksctlAgent) put(ctx context.Context, o client.Object, change func(client.Object)) error {
	err := h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
	change(o)
	if apierrors.IsNotFound(err) {
		return h.Plane.Client().Create(ctx, o)
	}
	if err != nil {
		return err
	}
	return h.Plane.Client().Update(ctx, o)
}

func with(data map[string][]byte, key string, value []byte) map[string][]byte {
	if data == nil {
		data = map[string][]byte{}
	}
	data[key] = value
	return data
}

// came are the entries that came since it was asked last, sorted.
func (a *ksctlAgent) came() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.Sorted(slices.Values(a.taken))
	a.taken = nil
	return out
}

// answers has the agent do something first from now on.
func (a *ksctlAgent) answers(first func(ctx context.Context, data []byte) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.first = first
}

// listen has an agent listen at an address until the spec ends.
func (a *ksctlAgent) listen(address string, options ...grpc.ServerOption) (at string) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", address)
	Expect(err).NotTo(HaveOccurred())
	server := grpc.NewServer(options...)
	agentpb.RegisterKsctlAgentServer(server, a)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	DeferCleanup(func() {
		server.Stop()
		Expect(<-done).To(Or(Succeed(), MatchError(grpc.ErrServerStopped)), "it may be stopped before it began")
	})
	return listener.Addr().String()
}

// through is an ImportState of the source "src" through an agent.
func through(ns string, to appsv1.AgentEndpoint) *v1alpha1.ImportState {
	return imported(ns, func(s *v1alpha1.ImportStateSpec) {
		s.Store, s.Conflict = &v1alpha1.ImportStore{Agent: &to}, v1alpha1.OverwriteConflict
		s.RetryInterval = &metav1.Duration{Duration: time.Second}
	})
}

// applied is the revision that an import has brought.
func applied(ctx context.Context, in *v1alpha1.ImportState) func() (string, error) {
	return func() (string, error) {
		_, err := stands(ctx, in)()
		return in.Status.LastAppliedRevision, err
	}
}

var _ = Describe("An ImportState through an agent", func() {
	It("sends every dialect as it is, and nothing again but what has changed, or what it is asked for", func(ctx SpecContext) {
		ns := namespace(ctx)
		agent := &ksctlAgent{ns: ns}
		address := agent.listen("127.0.0.1:0")
		files, want, all := map[string]string{}, []any{}, []string{"azure", "civo"}
		for _, name := range []string{"v1_0_civo_ha_k3s", "v1_2_0_aws_managed", "v2_0_azure_selfmanaged", "v2_aws_managed", "v1_azure_ha_k3s", "v1_local_managed"} {
			data := ofStore(name + ".json")
			files["clusters/"+name+".json"] = string(data)
			parsed, err := state.Parse(name, data)
			Expect(err).NotTo(HaveOccurred())
			for _, c := range parsed.Clusters {
				want, all = append(want, canonical(c.JSON())), append(all, c.ID.Key())
			}
		}
		slices.Sort(all)
		publish(ctx, ns, "main@sha1:1", files)
		in := through(ns, appsv1.AgentEndpoint{Address: address, Plaintext: true})
		in.Spec.Conflict = ""
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(And(HavePrefix("False StateConflict: "), ContainSubstring("set spec.conflict to Overwrite")))
		Expect(agent.came()).To(BeEmpty())

		By("telling it to overwrite")
		patch(ctx, in, `{"spec":{"conflict":"Overwrite"}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: 6 states and the credentials of 2 clouds sent to the agent at " + address))
		Expect(agent.came()).To(Equal(all))
		var got []string
		for _, doc := range stored(ctx, ns) {
			got = append(got, doc)
		}
		Expect(got).To(ConsistOf(want...))
		for _, row := range in.Status.Clusters {
			Expect(row.Action).To(Equal(v1alpha1.StateSent), row.Key)
			Expect(row.Ready).To(BeTrue(), row.Key)
		}

		By("starting the controller anew, and committing the same under another revision")
		restart()
		publish(ctx, ns, "main@sha1:2", files)
		Eventually(ctx, applied(ctx, in), soon).Should(Equal("main@sha1:2"))
		Expect(agent.came()).To(BeEmpty())

		By("committing one other state")
		const changed = "clusters/v2_aws_managed.json"
		files[changed] = strings.Replace(files[changed], "{", `{"words":"another",`, 1)
		publish(ctx, ns, "main@sha1:3", files)
		Eventually(ctx, applied(ctx, in), soon).Should(Equal("main@sha1:3"))
		Expect(agent.came()).To(HaveExactElements(HavePrefix("aws.managed.")))

		By("asking for it")
		patch(ctx, in, fmt.Sprintf(`{"metadata":{"annotations":{%q:"again"}}}`, appsv1.RequestedAtAnnotation))
		Eventually(ctx, func() (string, error) {
			_, err := stands(ctx, in)()
			return in.Status.LastHandledReconcileAt, err
		}, soon).Should(Equal("again"))
		Expect(agent.came()).To(Equal(all))
	})

	It("knows the agent by its certificate, and the agent it by a token, and takes up what changes in the Secret", func(ctx SpecContext) {
		ns := namespace(ctx)
		agent := &ksctlAgent{ns: ns}
		certificate, key, err := cert.GenerateSelfSignedCertKey("agent.example", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		Expect(err).NotTo(HaveOccurred())
		other, _, err := cert.GenerateSelfSignedCertKey("agent.example", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		Expect(err).NotTo(HaveOccurred())
		pair, err := tls.X509KeyPair(certificate, key)
		Expect(err).NotTo(HaveOccurred())
		token := heard.Secret("t0k3n-of-the-agent")
		asks := grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			if shown := strings.Join(md.Get("authorization"), " "); shown != "Bearer "+token {
				return nil, status.Error(codes.Unauthenticated, "nobody knows "+shown)
			}
			return next(ctx, req)
		})
		address := agent.listen("127.0.0.1:0", asks, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13})))
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": document("demo", "one")})
		in := through(ns, appsv1.AgentEndpoint{Address: address, SecretRef: &fluxmeta.LocalObjectReference{Name: "agent"}, ServerName: "agent.example"})
		in.Spec.RetryInterval = &metav1.Duration{Duration: time.Hour} // the Secret wakes it
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False SecretNotFound: there is no Secret " + ns + "/agent: make it, or correct spec.store.agent.secretRef"))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "agent"}, StringData: map[string]string{"token": heard.Secret("an0ther-t0k3n")}}
		create(ctx, secret)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False AgentSecretInvalid: the Secret " + ns + "/agent of spec.store.agent.secretRef: it has no ca.crt"))
		patch(ctx, secret, fmt.Sprintf(`{"stringData":{"ca.crt":%q}}`, other))
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("False AgentUnreachable: spec.store.agent: the agent can't be reached: its certificate is of an authority that ca.crt does not have"))
		patch(ctx, secret, fmt.Sprintf(`{"stringData":{"ca.crt":%q}}`, certificate))
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("False AgentFailed: spec.store.agent: the agent answers Unauthenticated: nobody knows Bearer …"))
		patch(ctx, secret, fmt.Sprintf(`{"stringData":{"token":%q}}`, token))
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: 1 state sent to the agent at " + address))
		Expect(agent.came()).To(Equal([]string{keyOf("demo")}))
	})

	It("says what an agent does that is down, slow or refuses, sends what that keeps back no more, and tells none of its secrets", func(ctx SpecContext) {
		ns := namespace(ctx)
		agent := &ksctlAgent{ns: ns}
		address, err := cluster.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		publish(ctx, ns, "main@sha1:1", map[string]string{"clusters/a.json": document("demo", "one"), "clusters/b.json": string(fixture("v1_azure_ha_k3s.json"))})
		in := through(ns, appsv1.AgentEndpoint{Address: address, Plaintext: true})
		in.Spec.Credentials = v1alpha1.SkipCredentials
		create(ctx, in)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("False AgentUnreachable: spec.store.agent: the agent can't be reached: connection refused"))

		By("starting it, so slow that its time is over")
		agent.answers(func(ctx context.Context, _ []byte) error {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		})
		patch(ctx, in, `{"spec":{"timeout":"1s"}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(HavePrefix("False AgentUnreachable: "), "from here on nobody waits longer")
		agent.listen(address)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("False AgentUnreachable: spec.store.agent: the agent can't be reached: it does not answer in time"))

		By("giving it time: what it took and did not answer to in time would be sent again")
		agent.answers(func(context.Context, []byte) error { return status.Error(codes.Internal, "not yet") })
		patch(ctx, in, `{"spec":{"timeout":null}}`)
		Eventually(ctx, stands(ctx, in), soon).Should(ContainSubstring("the agent answers Internal: not yet"))

		By("refusing one state with all that it says")
		agent.answers(func(_ context.Context, data []byte) error {
			if _, secret, ok := strings.Cut(string(data), `"ssh_key_pair":`); ok {
				return status.Errorf(codes.Internal, "can't take %s", secret)
			}
			return nil
		})
		Eventually(ctx, stands(ctx, in), soon).Should(And(HavePrefix("False AgentFailed: azure.ha."), HaveSuffix("the agent answers Internal: its words are left out, for they quote secrets of what was sent")))
		Expect(agent.came()).To(Equal([]string{keyOf("demo")}))
		agent.answers(func(_ context.Context, data []byte) error {
			if strings.Contains(string(data), "azure") {
				return status.Error(codes.Internal, "no\nroom "+strings.Repeat("left ", 1000))
			}
			return nil
		})
		Eventually(ctx, stands(ctx, in), soon).Should(And(ContainSubstring("the agent answers Internal: no room left left"), HaveSuffix("…"), Satisfy(func(s string) bool { return len(s) < 450 })))

		By("taking it")
		agent.answers(nil)
		Eventually(ctx, stands(ctx, in), soon).Should(Equal("True ReconciliationSucceeded: 2 states sent to the agent at " + address))
		Expect(agent.came()).To(HaveExactElements(HavePrefix("azure.ha.")))
	})
})
