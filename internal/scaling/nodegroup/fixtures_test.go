package nodegroup

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
	"github.com/ksctl/gitops/internal/scaling/pki"
)

var (
	prod  = types.NamespacedName{Namespace: "team", Name: "prod"}
	other = types.NamespacedName{Namespace: "team", Name: "prod-2"}
)

// groupID returns the group ID of a pool of prod.
func groupID(pool string) string { return GroupID(prod, pool) }

// joinedWorker returns a worker with a ready Node.
func joinedWorker(index int, pool string) Worker {
	node := fmt.Sprintf("prod-vm-wp-%d-abcde", index)
	return Worker{Index: int32(index), Pool: pool, Node: node, ProviderID: "k3s://" + node, Ready: true}
}

// workers returns one joined worker for each of the pools, in order; "" means no pool.
func workers(pools ...string) []Worker {
	var out []Worker
	for i, pool := range pools {
		out = append(out, joinedWorker(i, pool))
	}
	return out
}

// nodesAt returns the nodes of workers, by position.
func nodesAt(c *Cluster, at ...int) []Node {
	var out []Node
	for _, i := range at {
		out = append(out, Node{Name: c.Workers[i].Node, ProviderID: c.Workers[i].ProviderID})
	}
	return out
}

// fakeRecorder is a ChangeRecorder that keeps the changes in memory and publishes their result at
// once, as the controller does.
type fakeRecorder struct {
	clusters *Clusters
	mu       sync.Mutex
	recorded []Change
	fail     error
}

func (m *fakeRecorder) RecordChange(_ context.Context, key types.NamespacedName,
	decide func(*Cluster) ([]Change, error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	c := m.clusters.Get(key)
	if c == nil {
		return ErrUnknownCluster
	}
	_, _ = decide(c) // a ChangeRecorder may call decide more than once
	changes, err := decide(c)
	if err != nil || len(changes) == 0 {
		return err
	}
	m.recorded = append(m.recorded, changes...)
	m.publish(key, func(c *Cluster) { apply(c, changes) })
	return nil
}

func apply(c *Cluster, changes []Change) {
	for _, change := range changes {
		for i := range c.Groups {
			g := &c.Groups[i]
			if g.Name != change.Pool {
				continue
			}
			g.Target = change.Target
			if g.Failure != nil {
				f := *g.Failure
				f.Count -= change.ClearFailed
				g.Failure = &f
			}
		}
	}
}

func (m *fakeRecorder) publish(key types.NamespacedName, edit func(*Cluster)) {
	c := *m.clusters.Get(key)
	c.Groups, c.Workers = slices.Clone(c.Groups), slices.Clone(c.Workers)
	edit(&c)
	m.clusters.Publish(&c)
}

// edit publishes a modified state of a cluster.
func (m *fakeRecorder) edit(key types.NamespacedName, edit func(*Cluster)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.publish(key, edit)
}

// settle deletes and creates machines until each group has the desired number.
func (m *fakeRecorder) settle(key types.NamespacedName) {
	m.edit(key, func(c *Cluster) {
		_, leaving := newIndex(c).countMachines()
		for len(c.Workers) > 0 && leaving[len(c.Workers)-1] {
			c.Workers = c.Workers[:len(c.Workers)-1]
		}
		standings, _ := newIndex(c).countMachines()
		for i := range standings {
			for range standings[i].missing() {
				c.Workers = append(c.Workers, joinedWorker(len(c.Workers), c.Groups[i].Name))
			}
		}
	})
}

func (m *fakeRecorder) popRecorded() []Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.recorded
	m.recorded = nil
	return out
}

// authority is a certificate authority.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign, NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter: time.Now().Add(240 * time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate: certificate, key: key}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

func (a *authority) issue(t testing.TB, template x509.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(2)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	template.NotBefore = template.NotAfter.Add(-48 * time.Hour)
	raw, err := x509.CreateCertificate(rand.Reader, &template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func (a *authority) server(t testing.TB) *tls.Certificate {
	return a.issue(t,
		x509.Certificate{DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

func clientTemplate(uris ...*url.URL) x509.Certificate {
	return x509.Certificate{URIs: uris, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
}

// requestCounts counts requests by method and code.
type requestCounts struct {
	mu sync.Mutex
	by map[[2]string]int
}

func (c *requestCounts) NodeGroupRequest(method, code string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[[2]string]int{}
	}
	c.by[[2]string{method, code}]++
}

func (c *requestCounts) FailedHandshake() {}

func (c *requestCounts) count(method, code string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[[2]string{method, code}]
}

// serverTest is a Listener on loopback with its dependencies.
type serverTest struct {
	testing.TB
	clusters  *Clusters
	recorder  *fakeRecorder
	clock     *clocktesting.FakeClock
	authority *authority
	clients   atomic.Pointer[x509.CertPool] // verifies client certificates
	served    atomic.Pointer[tls.Certificate]
	listener  *Listener
	metrics   *requestCounts
	addr      string
	connect   func(context.Context) (net.Conn, error)
	stop      func() error
}

func newServerTest(t testing.TB, clusters ...*Cluster) *serverTest {
	t.Helper()
	r := &serverTest{TB: t, clusters: NewClusters(), clock: clocktesting.NewFakeClock(time.Now()),
		authority: newAuthority(t), metrics: &requestCounts{}}
	r.recorder = &fakeRecorder{clusters: r.clusters}
	for _, c := range clusters {
		r.clusters.Publish(c)
	}
	r.clients.Store(r.authority.pool())
	r.served.Store(r.authority.server(t))
	r.listener = &Listener{Server: NewServer(r.clusters, r.recorder, r.clock, Caller), Clock: r.clock,
		Log: logr.Discard(), Metrics: r.metrics,
		handshakeTimeout: time.Minute, // handshakes are slow on a busy machine
		Certificate:      func() (*tls.Certificate, error) { return r.served.Load(), nil },
		ClientCAs:        func() (*x509.CertPool, error) { return r.clients.Load(), nil }}
	return r
}

// start serves on a TCP port of loopback.
func (r *serverTest) start() *serverTest {
	r.Helper()
	socket, err := (&net.ListenConfig{}).Listen(r.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.Fatal(err)
	}
	r.addr = socket.Addr().String()
	r.connect = func(ctx context.Context) (net.Conn, error) { return (&net.Dialer{}).DialContext(ctx, "tcp", r.addr) }
	return r.serve(socket)
}

// serve serves connections of a net.Listener until the test ends or stop is called.
func (r *serverTest) serve(socket net.Listener) *serverTest {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.listener.serve(ctx, socket) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	r.Cleanup(func() {
		if err := r.stop(); err != nil {
			r.Error(err)
		}
	})
	return r
}

// dial connects with a client certificate, or with none if it is nil.
func (r *serverTest) dial(certificate *tls.Certificate) externalgrpc.CloudProviderClient {
	r.Helper()
	config := &tls.Config{RootCAs: r.authority.pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	conn, err := grpc.NewClient("passthrough:///localhost", grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.connect(ctx) }))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = conn.Close() })
	return externalgrpc.NewCloudProviderClient(conn)
}

// connectAs connects as the Cluster Autoscaler of a cluster.
func (r *serverTest) connectAs(key types.NamespacedName) externalgrpc.CloudProviderClient {
	r.Helper()
	return r.dial(r.authority.issue(r, clientTemplate(pki.ClientURI(key))))
}

// newCluster returns prod with a pool "small" of 0 to 6 machines and a pool "big" of 0 to 4. small
// and big are their targets.
func newCluster(smallTarget, bigTarget int32, all ...Worker) *Cluster {
	return &Cluster{Key: prod, Mode: clusterv1.ScalingAuto, Workers: all, OtherNodes: 3, Groups: []Group{
		{ID: groupID("small"), Name: "small", Max: 6, Target: smallTarget, Template: []byte("small")},
		{ID: groupID("big"), Name: "big", Max: 4, Target: bigTarget, Template: []byte("big")},
	}}
}
