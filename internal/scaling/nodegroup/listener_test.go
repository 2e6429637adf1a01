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

// blockingServer blocks Refresh until answer is signaled, and panics in GPULabel.
type blockingServer struct {
	*Server
	asked, answer chan struct{}
	deadline      time.Time
}

func (s *blockingServer) Refresh(ctx context.Context,
	_ *externalgrpc.RefreshRequest) (*externalgrpc.RefreshResponse, error) {
	s.deadline, _ = ctx.Deadline()
	s.asked <- struct{}{}
	<-s.answer
	return &externalgrpc.RefreshResponse{}, nil
}

func (s *blockingServer) GPULabel(context.Context,
	*externalgrpc.GPULabelRequest) (*externalgrpc.GPULabelResponse, error) {
	panic("no label")
}

// logBuffer collects the log.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) write(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(prefix + args + "\n")
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The test uses the fake clock of synctest and no network, because a busy machine is slow.
func TestShutdownWaitsForRequestsInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newServerTest(t, newCluster(1, 0))
		s := &blockingServer{Server: r.listener.Server.(*Server), asked: make(chan struct{}, 1),
			answer: make(chan struct{})}
		r.listener.Server = s
		if r.listener.Listening() {
			t.Error("Listening before Start")
		}
		at := bufconn.Listen(1 << 16)
		r.connect = at.DialContext
		r.serve(at)
		idle, err := at.DialContext(t.Context()) // never starts a handshake
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = idle.Close() }()
		c := r.connectAs(prod)
		answered := make(chan error, 1)
		go func() { answered <- refresh(t, c) }()
		<-s.asked
		if !r.listener.Listening() {
			t.Error("not Listening after Start")
		}
		if s.deadline.IsZero() || time.Until(s.deadline) > requestTimeout {
			t.Errorf("deadline %s", s.deadline)
		}
		stopped, begun := make(chan error, 1), time.Now()
		go func() { stopped <- r.stop() }()
		synctest.Wait()
		select {
		case err := <-stopped:
			t.Fatalf("stopped before the request ended: %v", err)
		case s.answer <- struct{}{}:
		}
		if err := <-answered; err != nil {
			t.Error(err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("waited %s for an idle connection", took)
		}
		if r.listener.Listening() {
			t.Error("Listening after the end")
		}
	})
}

func TestPanicFailsOnlyItsRequest(t *testing.T) {
	r := newServerTest(t, newCluster(1, 0))
	logged := &logBuffer{}
	r.listener.Log = funcr.New(logged.write, funcr.Options{})
	r.listener.Server = &blockingServer{Server: r.listener.Server.(*Server)}
	r.start()
	c := r.connectAs(prod)
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

func TestChangesAreLoggedAndCounted(t *testing.T) {
	r := newServerTest(t, newCluster(1, 0, workers("small")...))
	logged := &logBuffer{}
	r.listener.Log = funcr.New(logged.write, funcr.Options{})
	r.start()
	a := fakeAutoscaler{TB: t, CloudProviderClient: r.connectAs(prod)}
	a.refresh()
	a.groups()
	if logged.String() != "" {
		t.Errorf("reads are logged: %s", logged)
	}
	a.ok(a.increase(groupID("small"), 1))
	expectStatus(t, a.increase(groupID("small"), 100), codes.OutOfRange, "maxSize")
	expectStatus(t, a.remove(groupID("small"), Node{Name: strings.Repeat("x", 1000)}), codes.NotFound, "xxx")
	r.recorder.fail = errors.New("no space")
	expectStatus(t, a.increase(groupID("small"), 1), codes.Unavailable, "not done")
	text := logged.String()
	for _, part := range []string{`"autoscaler"="team/prod"`, `"delta"=1`, `"code"="OutOfRange"`, "maxSize is 6",
		"no space", `"count"=1`} {
		if !strings.Contains(text, part) {
			t.Errorf("%s does not contain %s", text, part)
		}
	}
	if strings.Contains(text, strings.Repeat("x", maxQuotedName+1)) {
		t.Error("the log contains a name beyond the limit")
	}
	if got := r.metrics.count("NodeGroupIncreaseSize", "OutOfRange"); got != 1 {
		t.Errorf("counted %d", got)
	}
}

func TestTooLongMessageIsRejected(t *testing.T) {
	r := newServerTest(t, newCluster(1, 0)).start()
	a := fakeAutoscaler{TB: t, CloudProviderClient: r.connectAs(prod)}
	expectStatus(t, a.remove(groupID("small"), Node{Name: strings.Repeat("x", maxMessageBytes)}),
		codes.ResourceExhausted, "")
}

func TestConnectionsAreBounded(t *testing.T) {
	at, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &boundedListener{Listener: at, open: map[*trackedConn]struct{}{}}
	for range maxConnections - 1 {
		one, _ := net.Pipe()
		s.open[&trackedConn{Conn: one, listener: s}] = struct{}{}
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
		t.Errorf("read %d bytes from a connection beyond maxConnections", n)
	}
	_ = first.Close()
	dial()
	if conn := <-accepted; conn == nil {
		t.Error("no connection accepted although one was closed")
	}
	s.closeAll()
	_ = at.Close()
	if len(s.open) != 0 {
		t.Errorf("%d left", len(s.open))
	}
}
