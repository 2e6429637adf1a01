package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/agent/agentpb"
)

// authority issues certificates.
type authority struct {
	testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{TB: t, key: newKey(t)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign}
	a.cert = a.sign(template, template, &a.key.PublicKey)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template, parent *x509.Certificate, public *ecdsa.PublicKey) *x509.Certificate {
	a.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return cert
}

// ca returns the CA certificate as PEM.
func (a *authority) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue returns a certificate for loopback and a name that expires at a time, and its key, as PEM.
func (a *authority) issue(name string, until time.Time) (cert, key []byte) {
	a.Helper()
	private := newKey(a)
	c := a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a.cert,
		&private.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// inOneHour is the expiry time of valid certificates.
func inOneHour() time.Time { return time.Now().Add(time.Hour) }

// fakeAgent implements the services of an agent with functions.
type fakeAgent struct {
	agentpb.UnimplementedKsctlAgentServer
	agentpb.UnimplementedWorkersServer

	storage func(context.Context, *agentpb.ReqStore) error
	scale   func(context.Context, *agentpb.ReqScale) (bool, error)
	list    func(context.Context, string) (*agentpb.ListResponse, error)
	begin   func(context.Context, *agentpb.BeginRequest) (*agentpb.BeginResponse, error)
}

func (f *fakeAgent) Storage(ctx context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
	return &agentpb.ResStore{}, f.storage(ctx, r)
}

func (f *fakeAgent) Scale(ctx context.Context, r *agentpb.ReqScale) (*agentpb.ResScale, error) {
	updated, err := f.scale(ctx, r)
	return &agentpb.ResScale{IsUpdated: updated}, err
}

func (f *fakeAgent) List(ctx context.Context, r *agentpb.ListRequest) (*agentpb.ListResponse, error) {
	return f.list(ctx, r.GetCluster())
}

func (f *fakeAgent) Begin(ctx context.Context, r *agentpb.BeginRequest) (*agentpb.BeginResponse, error) {
	return f.begin(ctx, r)
}

// serve runs an agent on loopback until the test ends and returns its address. The agent serves
// Workers only if list or begin is set; else it behaves as ksctl's own.
func serve(t *testing.T, f *fakeAgent, options ...grpc.ServerOption) string {
	t.Helper()
	return serveAt(t, "127.0.0.1:0", f, options...)
}

func serveAt(t *testing.T, address string, f *fakeAgent, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	agentpb.RegisterKsctlAgentServer(server, f)
	if f.list != nil || f.begin != nil {
		agentpb.RegisterWorkersServer(server, f)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return listener.Addr().String()
}

// serverTLS returns the TLS option of a server that requires client certificates of an authority;
// nil requires none.
func serverTLS(t *testing.T, cert, key []byte, clients *authority) grpc.ServerOption {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if clients != nil {
		cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		cfg.ClientCAs.AddCert(clients.cert)
	}
	return grpc.Creds(credentials.NewTLS(cfg))
}

// requireToken returns the option of a server that rejects calls without the token.
func requireToken(token string) grpc.ServerOption {
	return grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
		next grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if got := md.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+token {
			return nil, status.Errorf(codes.Unauthenticated, "the token is not %s", token)
		}
		return next(ctx, req)
	})
}

// dial returns a client that is closed when the test ends.
func dial(t *testing.T, e appsv1.AgentEndpoint, secret map[string][]byte) *Client {
	t.Helper()
	c, err := Dial(e, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// dialPlaintext runs an agent without TLS and returns a client of it.
func dialPlaintext(t *testing.T, f *fakeAgent, options ...grpc.ServerOption) *Client {
	t.Helper()
	return dial(t, appsv1.AgentEndpoint{Address: serve(t, f, options...), Plaintext: true}, nil)
}
