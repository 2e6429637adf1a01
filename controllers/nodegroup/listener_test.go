package nodegroup

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ksctl/gitops/controllers/nodegroup/externalgrpc"
)

func refresh(t *testing.T, c externalgrpc.CloudProviderClient) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := c.Refresh(ctx, &externalgrpc.RefreshRequest{})
	return err
}

func TestWhoIsNotLetIn(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	expired := client(Identity(prod))
	expired.NotAfter = time.Now().Add(-time.Minute)
	server := x509.Certificate{URIs: []*url.URL{Identity(prod)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, certificate := range map[string]*tls.Certificate{
		"without a certificate":        nil,
		"expired":                      r.authority.issue(t, expired),
		"of another authority":         newAuthority(t).issue(t, client(Identity(prod))),
		"a server's":                   r.authority.issue(t, server),
		"without an identity":          r.authority.issue(t, client()),
		"with two":                     r.authority.issue(t, client(Identity(prod), Identity(other))),
		"of something else":            r.authority.issue(t, client(uri("ksctl://agent/team/prod"))),
		"of another system":            r.authority.issue(t, client(uri("spiffe://autoscaler/team/prod"))),
		"with a longer name":           r.authority.issue(t, client(uri("ksctl://autoscaler/team/prod/x"))),
		"with a shorter name":          r.authority.issue(t, client(uri("ksctl://autoscaler/team"))),
		"with an empty name":           r.authority.issue(t, client(uri("ksctl://autoscaler/team/"))),
		"with a question":              r.authority.issue(t, client(uri("ksctl://autoscaler/team/prod?x=1"))),
		"with a port":                  r.authority.issue(t, client(uri("ksctl://autoscaler:1/team/prod"))),
		"with a name that is escaped":  r.authority.issue(t, client(uri("ksctl://autoscaler/team/prod%2Fx"))),
		"with a name that is no name":  r.authority.issue(t, client(uri("ksctl://autoscaler/team/PROD"))),
		"one good, one bad identity":   r.authority.issue(t, client(Identity(prod), uri("ksctl://autoscaler/x"))),
		"with a name of a person only": r.authority.issue(t, x509.Certificate{DNSNames: []string{"prod.team"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := refresh(t, r.dial(certificate)); status.Code(err) != codes.Unavailable {
				t.Errorf("%v", err)
			}
		})
	}
	if err := refresh(t, r.as(prod)); err != nil {
		t.Error(err)
	}
	if !r.clusters.LastAsked(other).IsZero() {
		t.Error("somebody got in")
	}
}

func TestAnOlderTLSIsRefused(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: r.authority.pool(), ServerName: "localhost", MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{*r.authority.issue(t, client(Identity(prod)))}}}).DialContext(t.Context(), "tcp", r.addr)
	if err == nil {
		_ = conn.Close()
		t.Error("TLS 1.2 is spoken")
	}
}

// The authority and the server's certificate may be others without a start.
func TestCertificatesAreReplacedWithoutAStart(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	before := r.authority
	if err := refresh(t, r.as(prod)); err != nil {
		t.Fatal(err)
	}
	r.authority = newAuthority(t)
	if err := refresh(t, r.as(prod)); err == nil {
		t.Error("a client of the next authority is let in")
	}
	r.clients.Store(r.authority.pool())
	r.served.Store(r.authority.server(t))
	if err := refresh(t, r.as(prod)); err != nil {
		t.Errorf("after the replacement: %v", err)
	}
	stale := before.issue(t, client(Identity(prod)))
	if err := refresh(t, r.dial(stale)); err == nil {
		t.Error("a client of the authority before is let in")
	}
}

func TestNobodyIsLetInWithoutAnAuthority(t *testing.T) {
	for name, f := range map[string]func() (*x509.CertPool, error){
		"there is none":  func() (*x509.CertPool, error) { return nil, nil },
		"it is not read": func() (*x509.CertPool, error) { return nil, errors.New("no Secret") },
		"it is empty":    func() (*x509.CertPool, error) { return x509.NewCertPool(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, cluster(1, 0))
			r.listener.ClientCAs = f
			r.start()
			if err := refresh(t, r.as(prod)); status.Code(err) != codes.Unavailable {
				t.Error(err)
			}
		})
	}
}

// A connection is kept; the certificate that it was made with may expire meanwhile.
func TestACertificateThatExpiresOnAConnection(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	c := r.as(prod)
	if err := refresh(t, c); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(2 * time.Hour)
	refused(t, refresh(t, c), codes.Unauthenticated, "expired")
}

// slow answers when it is let.
type slow struct {
	*Server
	asked, answer chan struct{}
	deadline      time.Time
}

func (s *slow) Refresh(ctx context.Context, _ *externalgrpc.RefreshRequest) (*externalgrpc.RefreshResponse, error) {
	s.deadline, _ = ctx.Deadline()
	s.asked <- struct{}{}
	<-s.answer
	return &externalgrpc.RefreshResponse{}, nil
}

func (s *slow) GPULabel(context.Context, *externalgrpc.GPULabelRequest) (*externalgrpc.GPULabelResponse, error) {
	panic("no label")
}

// log is what was logged.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) write(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(prefix + args + "\n")
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestItEndsWhenWhoAsksIsAnswered(t *testing.T) {
	r := newRig(t, cluster(1, 0))
	s := &slow{Server: r.listener.Server.(*Server), asked: make(chan struct{}, 1), answer: make(chan struct{})}
	r.listener.Server = s
	if r.listener.Listening() {
		t.Error("listens before it started")
	}
	r.start()
	idle, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr) // and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = idle.Close() }()
	c := r.as(prod)
	answered := make(chan error, 1)
	go func() { answered <- refresh(t, c) }()
	<-s.asked
	if !r.listener.Listening() {
		t.Error("does not listen")
	}
	if s.deadline.IsZero() || time.Until(s.deadline) > within {
		t.Errorf("deadline %s", s.deadline)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("ended before it answered: %v", err)
	case s.answer <- struct{}{}:
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if r.listener.Listening() {
		t.Error("listens after its end")
	}
}

func TestAPanicIsNoEnd(t *testing.T) {
	r := newRig(t, cluster(1, 0))
	logged := &log{}
	r.listener.Log = funcr.New(logged.write, funcr.Options{})
	r.listener.Server = &slow{Server: r.listener.Server.(*Server)}
	r.start()
	c := r.as(prod)
	_, err := c.GPULabel(t.Context(), &externalgrpc.GPULabelRequest{})
	if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "no label") {
		t.Error(err)
	}
	if !strings.Contains(logged.String(), "no label") || !strings.Contains(logged.String(), "listener_test.go") {
		t.Errorf("%s", logged)
	}
	if _, err := c.NodeGroups(t.Context(), &externalgrpc.NodeGroupsRequest{}); err != nil {
		t.Error(err)
	}
}

func TestWishesAreLoggedAndCounted(t *testing.T) {
	r := newRig(t, cluster(1, 0, workers("small")...))
	logged := &log{}
	r.listener.Log = funcr.New(logged.write, funcr.Options{})
	r.start()
	a := autoscaler{TB: t, CloudProviderClient: r.as(prod)}
	count := func(method, code string) float64 {
		var m dto.Metric
		if err := requests.WithLabelValues(method, code).Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	before := count("NodeGroupIncreaseSize", "OutOfRange")
	a.begin()
	a.groups()
	if logged.String() != "" {
		t.Errorf("reads are logged: %s", logged)
	}
	a.ok(a.increase(groupID("small"), 1))
	refused(t, a.increase(groupID("small"), 100), codes.OutOfRange, "maxSize")
	refused(t, a.remove(groupID("small"), Node{Name: strings.Repeat("x", 1000)}), codes.NotFound, "xxx")
	r.ledger.fail = errors.New("no space")
	refused(t, a.increase(groupID("small"), 1), codes.Unavailable, "not done")
	text := logged.String()
	for _, said := range []string{`"autoscaler"="team/prod"`, `"delta"=1`, `"code"="OutOfRange"`, "maxSize is 6", "no space", `"count"=1`} {
		if !strings.Contains(text, said) {
			t.Errorf("%s does not say %s", text, said)
		}
	}
	if strings.Contains(text, strings.Repeat("x", longest+1)) {
		t.Error("a name that is too long is logged")
	}
	if got := count("NodeGroupIncreaseSize", "OutOfRange"); got != before+1 {
		t.Errorf("counted %v", got-before)
	}
}

func TestAMessageThatIsTooLongIsNotRead(t *testing.T) {
	r := newRig(t, cluster(1, 0)).start()
	a := autoscaler{TB: t, CloudProviderClient: r.as(prod)}
	refused(t, a.remove(groupID("small"), Node{Name: strings.Repeat("x", maxMessage)}), codes.ResourceExhausted, "")
}

func TestSocketsAreBounded(t *testing.T) {
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sockets{Listener: at, open: map[*socket]struct{}{}}
	for range maxConnections - 1 {
		one, _ := net.Pipe()
		s.open[&socket{Conn: one, of: s}] = struct{}{}
	}
	dial := func() net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first, err := s.Accept()
	if err != nil {
		t.Fatal(err)
	}
	refusedConn := dial()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, _ := s.Accept()
		accepted <- conn
	}()
	if n, err := refusedConn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes beyond the bound", n)
	}
	_ = first.Close()
	dial()
	if conn := <-accepted; conn == nil {
		t.Error("there is room again")
	}
	s.closeAll()
	_ = at.Close()
	if len(s.open) != 0 {
		t.Errorf("%d left", len(s.open))
	}
}
