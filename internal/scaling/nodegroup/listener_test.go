package nodegroup

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ksctl/gitops/internal/scaling/nodegroup/externalgrpc"
)

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

// In a bubble's time, and without a network: on a busy machine everything takes long.
func TestItEndsWhenWhoAsksIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, cluster(1, 0))
		s := &slow{Server: r.listener.Server.(*Server), asked: make(chan struct{}, 1), answer: make(chan struct{})}
		r.listener.Server = s
		if r.listener.Listening() {
			t.Error("listens before it started")
		}
		at := bufconn.Listen(1 << 16)
		r.connect = at.DialContext
		r.serve(at)
		idle, err := at.DialContext(t.Context()) // and says nothing
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
		stopped, begun := make(chan error, 1), time.Now()
		go func() { stopped <- r.stop() }()
		synctest.Wait()
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
		if took := time.Since(begun); took > 0 {
			t.Errorf("waited %s for who says nothing", took)
		}
		if r.listener.Listening() {
			t.Error("listens after its end")
		}
	})
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
	if got := r.metrics.count("NodeGroupIncreaseSize", "OutOfRange"); got != 1 {
		t.Errorf("counted %d", got)
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
