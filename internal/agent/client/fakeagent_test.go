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
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
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

// ca is the authority as a Secret has it.
func (a *authority) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue is a certificate for loopback and a name, and its key, that end at a time.
func (a *authority) issue(name string, until time.Time) (cert, key []byte) {
	a.Helper()
	private := newKey(a)
	c := a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, a.cert, &private.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// soon is when certificates end that are valid.
func soon() time.Time { return time.Now().Add(time.Hour) }

// fake is an agent.
type fake struct {
	agentpb.UnimplementedKsctlAgentServer
	agentpb.UnimplementedWorkersServer

	storage func(context.Context, *agentpb.ReqStore) error
	scale   func(context.Context, *agentpb.ReqScale) (bool, error)
	list    func(context.Context, string) (*agentpb.ListResponse, error)
	begin   func(context.Context, *agentpb.BeginRequest) (*agentpb.BeginResponse, error)
}

func (f *fake) Storage(ctx context.Context, r *agentpb.ReqStore) (*agentpb.ResStore, error) {
	return &agentpb.ResStore{}, f.storage(ctx, r)
}

func (f *fake) Scale(ctx context.Context, r *agentpb.ReqScale) (*agentpb.ResScale, error) {
	updated, err := f.scale(ctx, r)
	return &agentpb.ResScale{IsUpdated: updated}, err
}

func (f *fake) List(ctx context.Context, r *agentpb.ListRequest) (*agentpb.ListResponse, error) {
	return f.list(ctx, r.GetCluster())
}

func (f *fake) Begin(ctx context.Context, r *agentpb.BeginRequest) (*agentpb.BeginResponse, error) {
	return f.begin(ctx, r)
}

// serve has an agent listen on loopback, as ksctl's own if it has no workers.
func serve(t *testing.T, f *fake, options ...grpc.ServerOption) string {
	t.Helper()
	return serveAt(t, "127.0.0.1:0", f, options...)
}

func serveAt(t *testing.T, address string, f *fake, options ...grpc.ServerOption) string {
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

// secured is TLS of a server that asks for certificates of an authority; nil: it asks for none.
func secured(t *testing.T, cert, key []byte, clients *authority) grpc.ServerOption {
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

// asking refuses calls without a token.
func asking(token string) grpc.ServerOption {
	return grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if got := md.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+token {
			return nil, status.Errorf(codes.Unauthenticated, "the token is not %s", token)
		}
		return next(ctx, req)
	})
}

// dial is a client that is closed with the test.
func dial(t *testing.T, e appsv1.AgentEndpoint, secret map[string][]byte) *Client {
	t.Helper()
	c, err := Dial(e, secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// plain is an agent without TLS.
func plain(t *testing.T, f *fake, options ...grpc.ServerOption) *Client {
	t.Helper()
	return dial(t, appsv1.AgentEndpoint{Address: serve(t, f, options...), Plaintext: true}, nil)
}
