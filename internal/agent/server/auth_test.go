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
	clocktesting "k8s.io/utils/clock/testing"

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
	a.cert, a.key = sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	return a
}

func (a *authority) pem() []byte { return encode("CERTIFICATE", a.cert.Raw) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

var serial int64

// sign makes a certificate, of its own when there is no authority.
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

// pair is a certificate for a use, with its key, as PEM.
func (a *authority) pair(t *testing.T, use x509.ExtKeyUsage, change ...func(*x509.Certificate)) (cert, key []byte) {
	t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: "somebody"}, ExtKeyUsage: []x509.ExtKeyUsage{use}, DNSNames: []string{"agent"}}
	for _, f := range change {
		f(c)
	}
	signed, private := sign(t, c, a)
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return encode("CERTIFICATE", signed.Raw), encode("EC PRIVATE KEY", der)
}

// caller's certificate.
func (a *authority) caller(t *testing.T, use x509.ExtKeyUsage, change ...func(*x509.Certificate)) []tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(a.pair(t, use, change...))
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{pair}
}

// site is an agent that listens, with its files.
type site struct {
	address string
	ours    *authority
	clock   *clocktesting.FakeClock
	Identity
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

const token = "a-token-of-some-length"

// listen serves an agent until the test ends.
func listen(t *testing.T, change func(*Identity)) *site {
	t.Helper()
	folder := t.TempDir()
	s := &site{ours: newAuthority(t, "ours"), clock: clocktesting.NewFakeClock(time.Now())}
	s.Identity = Identity{CertFile: filepath.Join(folder, "tls.crt"), KeyFile: filepath.Join(folder, "tls.key"),
		ClientCAFile: filepath.Join(folder, "ca.crt"), TokenFile: filepath.Join(folder, "token")}
	cert, key := s.ours.pair(t, x509.ExtKeyUsageServerAuth)
	write(t, s.CertFile, cert)
	write(t, s.KeyFile, key)
	write(t, s.ClientCAFile, s.ours.pem())
	write(t, s.TokenFile, []byte("another-token-of-some-length\n"+token+"\n"))
	if change != nil {
		change(&s.Identity)
	}
	how := Listening{Identity: &s.Identity, Reflection: true}
	if s.CertFile == "" {
		how.Identity = nil
	}
	c := newCloud(1)
	agent, err := New(Options{Store: &memory{}, Clock: s.clock, Log: logr.Discard(),
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

// dial connects with certificates and verifies the agent's.
func (s *site) dial(t *testing.T, certs []tls.Certificate) *grpc.ClientConn {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.ours.cert)
	return s.connect(t, credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "agent", Certificates: certs}))
}

func (s *site) connect(t *testing.T, how credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(how))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func bearer(t *testing.T, said string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "authorization", said)
}

// call asks for workers, and returns the code.
func call(ctx context.Context, conn *grpc.ClientConn) codes.Code {
	_, err := agentpb.NewWorkersClient(conn).List(ctx, &agentpb.ListRequest{})
	return status.Code(err)
}

func TestWhoMayCall(t *testing.T) {
	const client = x509.ExtKeyUsageClientAuth
	both := listen(t, nil)
	certs := listen(t, func(i *Identity) { i.TokenFile = "" })
	tokens := listen(t, func(i *Identity) { i.ClientCAFile = "" })
	theirs := newAuthority(t, "theirs")
	late := func(c *x509.Certificate) { c.NotAfter = both.clock.Now().Add(-time.Minute) }
	for name, c := range map[string]struct {
		site  *site
		certs []tls.Certificate
		said  string
		want  codes.Code
	}{
		"nobody":                         {site: both, want: codes.Unauthenticated},
		"a certificate":                  {site: both, certs: both.ours.caller(t, client), want: codes.OK},
		"a certificate of another":       {site: both, certs: theirs.caller(t, client), want: codes.Unauthenticated},
		"a server's certificate":         {site: both, certs: both.ours.caller(t, x509.ExtKeyUsageServerAuth), want: codes.Unauthenticated},
		"a certificate that is over":     {site: both, certs: both.ours.caller(t, client, late), want: codes.Unauthenticated},
		"a token":                        {site: both, said: "Bearer " + token, want: codes.OK},
		"the other token":                {site: both, said: "bearer another-token-of-some-length", want: codes.OK},
		"a wrong token":                  {site: both, said: "Bearer " + token + "x", want: codes.Unauthenticated},
		"a token's beginning":            {site: both, said: "Bearer " + token[:16], want: codes.Unauthenticated},
		"an empty token":                 {site: both, said: "Bearer ", want: codes.Unauthenticated},
		"a token of another scheme":      {site: both, said: "Basic " + token, want: codes.Unauthenticated},
		"a wrong token, a certificate":   {site: both, certs: both.ours.caller(t, client), said: "Bearer x", want: codes.OK},
		"a token, no certificate":        {site: certs, said: "Bearer " + token, want: codes.Unauthenticated},
		"a certificate where it counts":  {site: certs, certs: certs.ours.caller(t, client), want: codes.OK},
		"a certificate where none count": {site: tokens, certs: tokens.ours.caller(t, client), want: codes.Unauthenticated},
		"a token where only they count":  {site: tokens, said: "Bearer " + token, want: codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			conn := c.site.dial(t, c.certs)
			ctx := t.Context()
			if c.said != "" {
				ctx = bearer(t, c.said)
			}
			if got := call(ctx, conn); got != c.want {
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
			_ = stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
			if _, err = stream.Recv(); status.Code(err) != c.want {
				t.Errorf("reflection: %v, want %s", err, c.want)
			}
		})
	}
}

func TestWithoutTLS(t *testing.T) {
	s := listen(t, nil)
	if got := call(t.Context(), s.connect(t, insecure.NewCredentials())); got != codes.Unavailable {
		t.Errorf("plaintext to an agent with TLS: %s", got)
	}
	open := listen(t, func(i *Identity) { *i = Identity{} })
	if got := call(t.Context(), open.connect(t, insecure.NewCredentials())); got != codes.OK {
		t.Errorf("plaintext to one without: %s", got)
	}
}

func TestFilesThatChange(t *testing.T) {
	s := listen(t, nil)
	mine := s.ours.caller(t, x509.ExtKeyUsageClientAuth)
	conn := s.dial(t, mine)
	if got := call(t.Context(), conn); got != codes.OK {
		t.Fatal(got)
	}
	// Another authority counts from now on, also for who is connected.
	theirs := newAuthority(t, "theirs")
	write(t, s.ClientCAFile, theirs.pem())
	write(t, s.TokenFile, []byte("the-next-token-there-is"))
	s.clock.Step(2 * stale)
	if got := call(t.Context(), conn); got != codes.Unauthenticated {
		t.Errorf("with a certificate of before: %s", got)
	}
	if got := call(bearer(t, "Bearer "+token), conn); got != codes.Unauthenticated {
		t.Errorf("with a token of before: %s", got)
	}
	if got := call(bearer(t, "Bearer the-next-token-there-is"), conn); got != codes.OK {
		t.Errorf("with the next token: %s", got)
	}
	if got := call(t.Context(), s.dial(t, theirs.caller(t, x509.ExtKeyUsageClientAuth))); got != codes.OK {
		t.Errorf("with a certificate of the next authority: %s", got)
	}
	// What is of no use does not count.
	write(t, s.TokenFile, []byte("short"))
	write(t, s.ClientCAFile, nil)
	if err := os.Remove(s.KeyFile); err != nil {
		t.Fatal(err)
	}
	s.clock.Step(2 * stale)
	if got := call(bearer(t, "Bearer the-next-token-there-is"), s.dial(t, nil)); got != codes.OK {
		t.Errorf("with files of no use: %s", got)
	}
	// The agent's own.
	cert, key := theirs.pair(t, x509.ExtKeyUsageServerAuth)
	write(t, s.CertFile, cert)
	write(t, s.KeyFile, key)
	s.clock.Step(2 * stale)
	s.ours = theirs
	if got := call(bearer(t, "Bearer the-next-token-there-is"), s.dial(t, nil)); got != codes.OK {
		t.Errorf("with another certificate of its own: %s", got)
	}
}

func TestAnIdentityOfNoUse(t *testing.T) {
	folder := t.TempDir()
	cert, key := newAuthority(t, "ours").pair(t, x509.ExtKeyUsageServerAuth)
	file := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		write(t, path, data)
		return path
	}
	crt, private := file("crt", cert), file("key", key)
	for want, id := range map[string]Identity{
		"--tls-cert and --tls-key": {},
		"nobody could call":        {CertFile: crt, KeyFile: private},
		"--tls-cert: ":             {CertFile: private, KeyFile: private, ClientCAFile: crt},
		"--client-ca: ":            {CertFile: crt, KeyFile: private, ClientCAFile: private},
		"less than 16 bytes":       {CertFile: crt, KeyFile: private, TokenFile: file("short", []byte("x"))},
		"it has no token":          {CertFile: crt, KeyFile: private, TokenFile: file("empty", []byte("\n"))},
		"no such file":             {CertFile: crt, KeyFile: private, TokenFile: filepath.Join(folder, "none")},
	} {
		_, err := newGate(id, clocktesting.NewFakePassiveClock(time.Now()), logr.Discard())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestAHandlerThatPanics(t *testing.T) {
	s := &Server{opts: Options{Log: logr.Discard(), Metrics: NewMetrics()}}
	if err := s.answered("/x/Y", "at the disco", nil); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "disco") {
		t.Errorf("%v", err)
	}
}
