package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/net/proxy"

	"github.com/ksctl/gitops/stacks/artifact"
)

const (
	sshUser = "git"
	sshPort = "22"
	// maxSaid is how much of what a server says beside its answer is kept.
	maxSaid = 1 << 10
)

// sshWire speaks to a program of the server over SSH: each question is a connection of
// its own, so that nothing stays open between them.
type sshWire struct {
	address string // host:port
	user    string
	path    string
	program string
	signer  ssh.Signer
	hosts   knownHosts
	proxy   *url.URL
	limits  Limits
	masked  string
	secrets []string
}

func (c *Client) sshWire(u *url.URL, a *Access, program, masked string) (*sshWire, error) {
	w := &sshWire{user: sshUser, path: u.Path, program: program, proxy: a.Proxy, limits: c.limits, masked: masked, secrets: a.secrets(u)}
	port := u.Port()
	if port == "" {
		port = sshPort
	}
	w.address = net.JoinHostPort(u.Hostname(), port)
	if u.User != nil {
		if _, has := u.User.Password(); has {
			return nil, fail(URLInvalid, "the URL %s holds a password: use a key (identity) in a Secret", masked)
		}
		w.user = u.User.Username()
	}
	if w.path == "" || w.path == "/" || strings.ContainsAny(w.path, "\x00\n\r") {
		return nil, fail(URLInvalid, "%s names no repository on its server", masked)
	}
	if strings.HasPrefix(w.path, "/~") { // a user's folder
		w.path = w.path[1:]
	}
	if w.proxy != nil && w.proxy.Scheme != "socks5" {
		return nil, fail(CredentialsInvalid, "SSH goes through proxies of the scheme socks5 only, not %.20q", w.proxy.Scheme)
	}
	var err error
	if w.signer, err = signerOf(a, masked); err != nil {
		return nil, err
	}
	work, err := c.work()
	if err != nil {
		return nil, failBy(Reason(artifact.Storage), err, "keeping known_hosts")
	}
	w.hosts, err = parseKnownHosts(a.KnownHosts, work)
	return w, err
}

func signerOf(a *Access, masked string) (ssh.Signer, error) {
	if len(a.Identity) == 0 {
		return nil, fail(AuthenticationRequired, "%s needs a private key (identity), and the keys of its server (known_hosts), in a Secret", masked)
	}
	var signer ssh.Signer
	var err error
	if a.IdentityPassword == "" {
		signer, err = ssh.ParsePrivateKey(a.Identity)
	} else {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(a.Identity, []byte(a.IdentityPassword))
	}
	if _, missing := errors.AsType[*ssh.PassphraseMissingError](err); missing {
		return nil, fail(CredentialsInvalid, "the private key (identity) is encrypted: add its password")
	}
	if err != nil {
		// What the parser says can hold parts of the key.
		return nil, fail(CredentialsInvalid, "the private key (identity) can't be read: expected a key in PEM as ssh-keygen writes it, and the password that opens it, if it has one")
	}
	return signer, nil
}

// list implements wire.
func (w *sshWire) list(ctx context.Context) (io.ReadCloser, error) { return w.open(ctx) }

// ask implements wire.
func (w *sshWire) ask(ctx context.Context, request []byte) (io.ReadCloser, error) {
	s, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	// The server begins with its list, whether it is wanted or not.
	if err := skipList(s, w.limits.RefBytes); err != nil {
		_ = s.Close()
		if _, ok := errors.AsType[*Error](err); ok && ctx.Err() == nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, unreachable(ctx, err, w.masked)
		}
		return nil, failBy(OperationFailed, err, "the list of branches of %s can't be read", w.masked)
	}
	_, err = s.stdin.Write(request)
	if cerr := s.stdin.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = s.Close()
		return nil, unreachable(ctx, err, w.masked)
	}
	return s, nil
}

// sshStream is what the program on the server writes.
type sshStream struct {
	client  *ssh.Client
	session *ssh.Session
	stdin   io.WriteCloser
	stdout  io.Reader
	said    *said
	any     bool // whether anything came
	stop    func() bool
	wire    *sshWire
}

// open connects and starts the program.
func (w *sshWire) open(ctx context.Context) (_ *sshStream, err error) {
	conn, err := w.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if err != nil {
			stop()
			_ = conn.Close()
		}
	}()
	client, err := w.handshake(ctx, conn)
	if err != nil {
		return nil, err
	}
	s := &sshStream{client: client, stop: stop, wire: w, said: &said{}}
	if s.session, err = client.NewSession(); err == nil {
		s.session.Stderr = s.said
		if s.stdin, err = s.session.StdinPipe(); err == nil {
			s.stdout, err = s.session.StdoutPipe()
		}
	}
	if err == nil {
		err = s.session.Start(w.program + " '" + strings.ReplaceAll(w.path, "'", `'\''`) + "'")
	}
	if err != nil {
		return nil, unreachable(ctx, err, w.masked)
	}
	return s, nil
}

func (w *sshWire) dial(ctx context.Context) (net.Conn, error) {
	dialer := artifact.NewDialer()
	if w.proxy == nil {
		conn, err := dialer.DialContext(ctx, "tcp", w.address)
		if err != nil {
			return nil, unreachable(ctx, err, w.masked)
		}
		return conn, nil
	}
	if err := artifact.RefuseHost(w.address); err != nil {
		return nil, unreachable(ctx, err, w.masked)
	}
	var auth *proxy.Auth
	if u := w.proxy.User; u != nil {
		password, _ := u.Password()
		auth = &proxy.Auth{User: u.Username(), Password: password}
	}
	socks, err := proxy.SOCKS5("tcp", w.proxy.Host, auth, dialer)
	if err != nil {
		return nil, failBy(ProxyFailed, err, "the proxy can't be used")
	}
	conn, err := socks.(proxy.ContextDialer).DialContext(ctx, "tcp", w.address)
	if err != nil {
		if ctx.Err() != nil {
			return nil, unreachable(ctx, err, w.masked)
		}
		return nil, failBy(ProxyFailed, err, "%s can't be reached through the proxy", w.masked)
	}
	return conn, nil
}

// handshake proves to each other who the two sides are.
func (w *sshWire) handshake(ctx context.Context, conn net.Conn) (*ssh.Client, error) {
	offered := false
	check := &hostCheck{hosts: w.hosts}
	config := &ssh.ClientConfig{User: w.user, HostKeyCallback: check.callback, HostKeyAlgorithms: w.hosts.algorithms(w.address),
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			offered = true
			return []ssh.Signer{w.signer}, nil
		})}}
	c, channels, requests, err := ssh.NewClientConn(conn, w.address, config)
	switch {
	case err == nil:
		return ssh.NewClient(c, channels, requests), nil
	case ctx.Err() != nil:
		return nil, unreachable(ctx, err, w.masked)
	case check.err != nil:
		return nil, check.refusal(w.address, w.masked)
	case offered:
		return nil, failBy(AuthenticationFailed, err, "%s does not take the private key (identity) of user %.80q", w.masked, w.user)
	}
	if _, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err); ok && len(config.HostKeyAlgorithms) > 0 {
		return nil, failBy(HostKeyUnknown, err, "%s has no host key of the kinds that known_hosts names for it", w.masked)
	}
	return nil, failBy(OperationFailed, err, "%s can't be talked to over SSH", w.masked)
}

// Read implements io.Reader. A server that ends without a word has said why on
// the side.
func (s *sshStream) Read(p []byte) (int, error) {
	n, err := s.stdout.Read(p)
	s.any = s.any || n > 0
	if !errors.Is(err, io.EOF) || s.any {
		return n, err
	}
	s.any = true // what follows is said once
	if exit, ok := errors.AsType[*ssh.ExitError](s.session.Wait()); ok {
		may := "read it"
		if s.wire.program == receivePack {
			may = "write to it"
		}
		return n, fail(RepositoryNotFound, "there is no repository at %s, or this private key (identity) may not %s; the server ended with %d and says: %s",
			s.wire.masked, may, exit.ExitStatus(), saying(s.said.String(), s.wire.secrets))
	}
	return n, err
}

// Close implements io.Closer.
func (s *sshStream) Close() error {
	s.stop()
	_ = s.session.Close()
	return s.client.Close()
}

// said keeps the beginning of what a server writes on the side.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(p[:min(len(p), maxSaid-s.buf.Len())])
	return len(p), nil
}

// String is what was said.
func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}
