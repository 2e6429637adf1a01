package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/internal/agent/agentpb"
	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

func (a *authority) pem() []byte { return encodePEM("CERTIFICATE", a.cert.Raw) }

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

var serial int64

// sign issues a certificate; it is self-signed if by is nil.
func sign(t *testing.T, c *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial++
	c.SerialNumber = big.NewInt(serial)
	c.NotBefore = time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return out, key
}

// issue returns a certificate for a use and its key, as PEM.
func (a *authority) issue(t *testing.T, use x509.ExtKeyUsage, change ...func(*x509.Certificate)) (cert, key []byte) {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "somebody"}, ExtKeyUsage: []x509.ExtKeyUsage{use},
		DNSNames: []string{"agent"}}
	for _, f := range change {
		f(c)
	}
	signed, private := sign(t, c, a)
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return encodePEM("CERTIFICATE", signed.Raw), encodePEM("EC PRIVATE KEY", der)
}

// callerCertificate issues a certificate for a caller.
func (a *authority) callerCertificate(t *testing.T, use x509.ExtKeyUsage,
	change ...func(*x509.Certificate)) []tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.issue(t, use, change...))
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

// testServer is a running agent with its credentials files.
type testServer struct {
	address string
	ca      *authority
	Identity
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

const token = "a-token-of-some-length"

// startServer serves an agent until the test ends.
func startServer(t *testing.T, change func(*Identity)) *testServer {
	t.Helper()
	folder := t.TempDir()
	s := &testServer{ca: newAuthority(t, "ours")}
	s.Identity = Identity{CertFile: filepath.Join(folder, "tls.crt"), KeyFile: filepath.Join(folder, "tls.key"),
		ClientCAFile: filepath.Join(folder, "ca.crt"), TokenFile: filepath.Join(folder, "token")}
	cert, key := s.ca.issue(t, x509.ExtKeyUsageServerAuth)
	write(t, s.CertFile, cert)
	write(t, s.KeyFile, key)
	write(t, s.ClientCAFile, s.ca.pem())
	write(t, s.TokenFile, []byte("another-token-of-some-length\n"+token+"\n"))
	if change != nil {
		change(&s.Identity)
	}
	how := ServeOptions{Identity: &s.Identity, Reflection: true}
	if s.CertFile == "" {
		how.Identity = nil
	}
	c := newFakeCloud(1)
	agent, err := New(Options{Store: &memoryStore{}, Log: logr.Discard(),
		Clusters: []Cluster{{Cluster: provisioner.Cluster{Name: "demo"}, Client: c.client, Runner: c}}})
	if err != nil {
		t.Fatal(err)
	}
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = on.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- agent.Serve(ctx, on, how) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := agent.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// dial connects with client certificates and verifies the agent's certificate.
func (s *testServer) dial(t *testing.T, certs []tls.Certificate) *grpc.ClientConn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.ca.cert)
	return s.connect(t, credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "agent", Certificates: certs}))
}

func (s *testServer) connect(t *testing.T, how credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(how))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func withToken(t *testing.T, header string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", header)
}

// listCode calls List and returns the gRPC code.
func listCode(ctx context.Context, conn *grpc.ClientConn) codes.Code {
	_, err := agentpb.NewWorkersClient(conn).List(ctx, &agentpb.ListRequest{})
	return status.Code(err)
}

func TestAuthentication(t *testing.T) {
	const client = x509.ExtKeyUsageClientAuth
	both := startServer(t, nil)
	certs := startServer(t, func(i *Identity) { i.TokenFile = "" })
	tokens := startServer(t, func(i *Identity) { i.ClientCAFile = "" })
	theirs := newAuthority(t, "theirs")
	late := func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }
	for name, c := range map[string]struct {
		server *testServer
		certs  []tls.Certificate
		header string
		want   codes.Code
	}{
		"no credentials": {server: both, want: codes.Unauthenticated},
		"certificate":    {server: both, certs: both.ca.callerCertificate(t, client), want: codes.OK},
		"certificate of another CA": {server: both, certs: theirs.callerCertificate(t, client),
			want: codes.Unauthenticated},
		"server certificate": {server: both, certs: both.ca.callerCertificate(t, x509.ExtKeyUsageServerAuth),
			want: codes.Unauthenticated},
		"expired certificate": {server: both, certs: both.ca.callerCertificate(t, client, late),
			want: codes.Unauthenticated},
		"token":                     {server: both, header: "Bearer " + token, want: codes.OK},
		"other token":               {server: both, header: "bearer another-token-of-some-length", want: codes.OK},
		"wrong token":               {server: both, header: "Bearer " + token + "x", want: codes.Unauthenticated},
		"prefix of a token":         {server: both, header: "Bearer " + token[:16], want: codes.Unauthenticated},
		"empty token":               {server: both, header: "Bearer ", want: codes.Unauthenticated},
		"token with another scheme": {server: both, header: "Basic " + token, want: codes.Unauthenticated},
		"wrong token and certificate": {server: both, certs: both.ca.callerCertificate(t, client), header: "Bearer x",
			want: codes.OK},
		"token without a token file": {server: certs, header: "Bearer " + token, want: codes.Unauthenticated},
		"certificate with only a CA": {server: certs, certs: certs.ca.callerCertificate(t, client), want: codes.OK},
		"certificate without a CA": {server: tokens, certs: tokens.ca.callerCertificate(t, client),
			want: codes.Unauthenticated},
		"token with only a token file": {server: tokens, header: "Bearer " + token, want: codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			conn := c.server.dial(t, c.certs)
			ctx := t.Context()
			if c.header != "" {
				ctx = withToken(t, c.header)
			}
			if got := listCode(ctx, conn); got != c.want {
				t.Errorf("List: %s, want %s", got, c.want)
			}
			_, err := agentpb.NewKsctlAgentClient(conn).Scale(ctx, &agentpb.ReqScale{DesiredNoOfWP: 1})
			if got := status.Code(err); got != c.want {
				t.Errorf("Scale: %s, want %s", got, c.want)
			}
			res, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
			if err != nil || res.Status == healthpb.HealthCheckResponse_UNKNOWN {
				t.Errorf("health: %v, %v", res, err)
			}
			stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(
				&reflectionpb.ServerReflectionRequest{
					MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			if _, err = stream.Recv(); status.Code(err) != c.want {
				t.Errorf("reflection: %v, want %s", err, c.want)
			}
		})
	}
}

func TestPlaintext(t *testing.T) {
	s := startServer(t, nil)
	if got := listCode(t.Context(), s.connect(t, insecure.NewCredentials())); got != codes.Unavailable {
		t.Errorf("plaintext to an agent with TLS: %s", got)
	}
	open := startServer(t, func(i *Identity) { *i = Identity{} })
	if got := listCode(t.Context(), open.connect(t, insecure.NewCredentials())); got != codes.OK {
		t.Errorf("plaintext to an agent without TLS: %s", got)
	}
}

func TestCredentialFilesAreReloaded(t *testing.T) {
	interval := recheckInterval
	t.Cleanup(func() { recheckInterval = interval })
	recheckInterval = 0
	s := startServer(t, nil)
	mine := s.ca.callerCertificate(t, x509.ExtKeyUsageClientAuth)
	conn := s.dial(t, mine)
	if got := listCode(t.Context(), conn); got != codes.OK {
		t.Fatal(got)
	}
	// The new CA applies to open connections, too.
	theirs := newAuthority(t, "theirs")
	write(t, s.ClientCAFile, theirs.pem())
	write(t, s.TokenFile, []byte("the-next-token-there-is"))
	if got := listCode(t.Context(), conn); got != codes.Unauthenticated {
		t.Errorf("with a certificate of the old CA: %s", got)
	}
	if got := listCode(withToken(t, "Bearer "+token), conn); got != codes.Unauthenticated {
		t.Errorf("with an old token: %s", got)
	}
	if got := listCode(withToken(t, "Bearer the-next-token-there-is"), conn); got != codes.OK {
		t.Errorf("with the new token: %s", got)
	}
	if got := listCode(t.Context(),
		s.dial(t, theirs.callerCertificate(t, x509.ExtKeyUsageClientAuth))); got != codes.OK {
		t.Errorf("with a certificate of the new CA: %s", got)
	}
	// Invalid files are ignored.
	write(t, s.TokenFile, []byte("short"))
	write(t, s.ClientCAFile, nil)
	if err := os.Remove(s.KeyFile); err != nil {
		t.Fatal(err)
	}
	if got := listCode(withToken(t, "Bearer the-next-token-there-is"), s.dial(t, nil)); got != codes.OK {
		t.Errorf("with invalid files: %s", got)
	}
	// The agent's own certificate.
	cert, key := theirs.issue(t, x509.ExtKeyUsageServerAuth)
	write(t, s.CertFile, cert)
	write(t, s.KeyFile, key)
	s.ca = theirs
	if got := listCode(withToken(t, "Bearer the-next-token-there-is"), s.dial(t, nil)); got != codes.OK {
		t.Errorf("with a new server certificate: %s", got)
	}
}

func TestNewAuthenticatorRejectsInvalidIdentity(t *testing.T) {
	folder := t.TempDir()
	cert, key := newAuthority(t, "ours").issue(t, x509.ExtKeyUsageServerAuth)
	file := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		write(t, path, data)
		return path
	}
	crt, private := file("crt", cert), file("key", key)
	for want, id := range map[string]Identity{
		"can't be authenticated": {CertFile: crt, KeyFile: private},
		"--tls-cert: ":           {CertFile: private, KeyFile: private, ClientCAFile: crt},
		"--client-ca: ":          {CertFile: crt, KeyFile: private, ClientCAFile: private},
		"shorter than 16 bytes":  {CertFile: crt, KeyFile: private, TokenFile: file("short", []byte("x"))},
		"no token found":         {CertFile: crt, KeyFile: private, TokenFile: file("empty", []byte("\n"))},
		"no such file":           {CertFile: crt, KeyFile: private, TokenFile: filepath.Join(folder, "none")},
	} {
		_, err := newAuthenticator(id, logr.Discard())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestHandlerPanicReturnsInternal(t *testing.T) {
	s := &Server{opts: Options{Log: logr.Discard(), Metrics: NewMetrics()}}
	if err := s.recordCall("/x/Y", "at the disco", nil); status.Code(err) != codes.Internal ||
		strings.Contains(err.Error(), "disco") {
		t.Errorf("%v", err)
	}
}
