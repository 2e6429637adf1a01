package targets_test

import (
	"io"
	"net"
	"sync"
)

// line is a way to an address that can be cut without a word: connections stay, and nothing
// goes over them.
type line struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	going *sync.Cond
	cut   bool
	ended bool
	conns []net.Conn
	wg    sync.WaitGroup
}

func newLine(to string) (*line, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	x := &line{listener: l, to: to}
	x.going = sync.NewCond(&x.mu)
	x.wg.Go(x.accept)
	return x, nil
}

// Addr is where it begins.
func (l *line) Addr() string { return l.listener.Addr().String() }

func (l *line) accept() {
	for {
		from, err := l.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		if !l.keep(from, to) {
			return
		}
		l.wg.Go(func() { l.carry(to, from) })
		l.wg.Go(func() { l.carry(from, to) })
	}
}

// keep has connections end with the line; false: it has ended, and they with it.
func (l *line) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	l.conns = append(l.conns, conns...)
	return true
}

// carry copies what comes, while the line is not cut.
func (l *line) carry(to io.WriteCloser, from io.Reader) {
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

// wait is false when the line has ended.
func (l *line) wait() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.cut && !l.ended {
		l.going.Wait()
	}
	return !l.ended
}

// Pause cuts the line.
func (l *line) Pause() { l.set(func() { l.cut = true }) }

// Resume mends it.
func (l *line) Resume() { l.set(func() { l.cut = false }) }

func (l *line) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	l.going.Broadcast()
}

// Close ends it with all of its connections.
func (l *line) Close() error {
	err := l.listener.Close()
	l.set(func() { l.ended = true })
	l.mu.Lock()
	conns := l.conns
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	l.wg.Wait()
	return err
}
