package targets_test

import (
	"io"
	"net"
	"sync"
)

// pausableProxy is a TCP proxy. While it is paused, its connections stay open, but forward
// nothing.
type pausableProxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	changed *sync.Cond
	paused  bool
	closed  bool
	conns   []net.Conn
	wg      sync.WaitGroup
}

func newPausableProxy(to string) (*pausableProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	x := &pausableProxy{listener: l, target: to}
	x.changed = sync.NewCond(&x.mu)
	x.wg.Go(x.accept)
	return x, nil
}

// Addr returns the address that the proxy listens on.
func (l *pausableProxy) Addr() string { return l.listener.Addr().String() }

func (l *pausableProxy) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		if !l.track(from, to) {
			return
		}
		l.wg.Go(func() { l.forward(to, from) })
		l.wg.Go(func() { l.forward(from, to) })
	}
}

// track closes connections when the proxy is closed. It returns false if that is already the
// case.
func (l *pausableProxy) track(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	l.conns = append(l.conns, conns...)
	return true
}

// forward copies data while the proxy is not paused.
func (l *pausableProxy) forward(to io.WriteCloser, from io.Reader) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if !l.wait() {
			return
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// wait blocks while the proxy is paused. It returns false when the proxy is closed.
func (l *pausableProxy) wait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.paused && !l.closed {
		l.changed.Wait()
	}
	return !l.closed
}

// Pause stops forwarding.
func (l *pausableProxy) Pause() { l.update(func() { l.paused = true }) }

// Resume continues forwarding.
func (l *pausableProxy) Resume() { l.update(func() { l.paused = false }) }

func (l *pausableProxy) update(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.changed.Broadcast()
}

// Close closes the proxy and all of its connections.
func (l *pausableProxy) Close() error {
	err := l.listener.Close()
	l.update(func() { l.closed = true })
	l.mu.Lock()
	conns := l.conns
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	l.wg.Wait()
	return err
}
