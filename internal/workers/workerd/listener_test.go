package workerd_test

import (
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// accept returns a listener of the net package for a socket.
func accept(t *testing.T, l *workerd.Listener) *net.TCPListener {
	t.Helper()
	file, err := l.Duplicate()
	if err != nil {
		t.Fatal(err)
	}
	out, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	t.Cleanup(func() { _ = out.Close() })
	return out.(*net.TCPListener)
}

// connect opens connections to a port.
func connect(t *testing.T, address string, n int) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

// queued accepts the connections in the queue of a socket, and returns their number.
func queued(t *testing.T, l *net.TCPListener) (n int) {
	t.Helper()
	if err := l.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for ; ; n++ {
		c, err := l.Accept()
		if os.IsTimeout(err) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
}

func TestPortSwitchesNewConnections(t *testing.T) {
	p, err := workerd.ListenPort(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	address := p.Current().Addr().String()
	const n = 20
	for round := range 3 {
		old := accept(t, p.Current())
		next, err := p.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if next == p.Current() {
			if runtime.GOOS == "linux" {
				t.Fatal("the kernel does not choose between the sockets")
			}
			t.Skip("this kernel cannot choose between sockets")
		}
		fresh := accept(t, next)
		connect(t, address, n)
		if a, b := queued(t, old), queued(t, fresh); a != n || b != 0 {
			t.Fatalf("round %d, before the switch: %d and %d connections", round, a, b)
		}
		if round == 1 {
			if err := p.Discard(next); err != nil {
				t.Fatal(err)
			}
			_ = fresh.Close()
			connect(t, address, n)
			if a := queued(t, old); a != n {
				t.Fatalf("after a socket was discarded: %d connections", a)
			}
			_ = old.Close()
			continue
		}
		if err := p.Switch(next); err != nil {
			t.Fatal(err)
		}
		connect(t, address, n)
		if a, b := queued(t, old), queued(t, fresh); a != 0 || b != n {
			t.Fatalf("round %d, after the switch: %d and %d connections", round, a, b)
		}
		_ = old.Close() // as a process that ends
		connect(t, address, n)
		if b := queued(t, fresh); b != n {
			t.Fatalf("round %d, after the old socket was closed: %d connections", round, b)
		}
		_ = fresh.Close()
	}
}
