package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	"golang.org/x/net/proxy"

	"github.com/ksctl/gitops/stacks/artifact"
)

const (
	sshUser = "git"
	sshPort = "22"
	// maxBuffered bounds the messages of a server that are kept, in bytes.
	maxBuffered = 1 << 10
)

// sshTransport runs a program of the server over SSH. Each request uses a new connection, so
// that no connection stays open between requests.
type sshTransport struct {
	address    string // host:port
	user       string
	path       string
	program    string
	signer     ssh.Signer
	knownHosts *knownhosts.HostKeyDB
	proxy      *url.URL
	limits     Limits
	endpoint
}

func (c *Client) newSSHTransport(u *url.URL, a *Access, program string, e endpoint) (*sshTransport, error) {
	w := &sshTransport{address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), sshPort)), user: sshUser, path: u.Path,
		program: program, proxy: a.Proxy, limits: c.limits, endpoint: e}
	if u.User != nil {
		if _, has := u.User.Password(); has {
			return nil, newError(URLInvalid, "the URL %s contains a password: use a key (identity) in a Secret",
				w.maskedURL)
		}
		w.user = u.User.Username()
	}
	if w.path == "" || w.path == "/" || strings.ContainsAny(w.path, "\x00\n\r") {
		return nil, newError(URLInvalid, "%s contains no repository path", w.maskedURL)
	}
	if strings.HasPrefix(w.path, "/~") { // a home directory
		w.path = w.path[1:]
	}
	if w.proxy != nil && w.proxy.Scheme != "socks5" {
		return nil, newError(CredentialsInvalid, "SSH requires a proxy with the scheme socks5, not %.20q",
			w.proxy.Scheme)
	}
	var err error
	if w.signer, err = parseSigner(a, w.maskedURL); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.tempDir, 0o700); err != nil {
		return nil, wrapError(artifact.Storage, err, "storing known_hosts")
	}
	w.knownHosts, err = parseKnownHosts(a.KnownHosts, c.tempDir)
	return w, err
}

func parseSigner(a *Access, masked string) (ssh.Signer, error) {
	if len(a.Identity) == 0 {
		return nil, newError(AuthenticationRequired,
			"%s requires a Secret with a private key (identity) and the host keys of the server (known_hosts)", masked)
	}
	var signer ssh.Signer
	var err error
	if a.IdentityPassword == "" {
		signer, err = ssh.ParsePrivateKey(a.Identity)
	} else {
		signer, err = ssh.ParsePrivateKeyWithPassphrase(a.Identity, []byte(a.IdentityPassword))
	}
	if _, missing := errors.AsType[*ssh.PassphraseMissingError](err); missing {
		return nil, newError(CredentialsInvalid, "the private key (identity) is encrypted: add its password")
	}
	if err != nil {
		// The message omits err, which can contain parts of the key.
		return nil, newError(CredentialsInvalid,
			"the private key (identity) can't be read: expected a key in PEM as ssh-keygen writes it, and its "+
				"password if it is encrypted")
	}
	return signer, nil
}

// openRefs implements transport.
func (w *sshTransport) openRefs(ctx context.Context) (io.ReadCloser, error) { return w.open(ctx) }

// send implements transport.
func (w *sshTransport) send(ctx context.Context, request []byte) (io.ReadCloser, error) {
	s, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	// The server always sends its list of refs first.
	if _, err := w.decodeRefs(ctx, io.LimitReader(s, w.limits.RefBytes)); err != nil {
		_ = s.Close()
		return nil, err
	}
	_, err = s.stdin.Write(request)
	if err = cmp.Or(err, s.stdin.Close()); err != nil {
		_ = s.Close()
		return nil, w.connectionError(ctx, err)
	}
	return s, nil
}

// sshStream is the output of the program on the server.
type sshStream struct {
	client    *ssh.Client
	session   *ssh.Session
	stdin     io.WriteCloser
	stdout    io.Reader
	stderr    *boundedBuffer
	received  bool // true after the first byte was received
	stop      func() bool
	transport *sshTransport
}

// open connects to the server and starts the program.
func (w *sshTransport) open(ctx context.Context) (_ *sshStream, err error) {
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
	s := &sshStream{client: client, stop: stop, transport: w, stderr: &boundedBuffer{}}
	if s.session, err = client.NewSession(); err == nil {
		s.session.Stderr = s.stderr
		if s.stdin, err = s.session.StdinPipe(); err == nil {
			s.stdout, err = s.session.StdoutPipe()
		}
	}
	if err == nil {
		err = s.session.Start(w.program + " '" + strings.ReplaceAll(w.path, "'", `'\''`) + "'")
	}
	if err != nil {
		return nil, w.connectionError(ctx, err)
	}
	return s, nil
}

func (w *sshTransport) dial(ctx context.Context) (net.Conn, error) {
	dialer := artifact.NewDialer()
	if w.proxy == nil {
		conn, err := dialer.DialContext(ctx, "tcp", w.address)
		if err != nil {
			return nil, w.connectionError(ctx, err)
		}
		return conn, nil
	}
	if err := artifact.CheckHost(w.address); err != nil {
		return nil, w.connectionError(ctx, err)
	}
	var auth *proxy.Auth
	if u := w.proxy.User; u != nil {
		password, _ := u.Password()
		auth = &proxy.Auth{User: u.Username(), Password: password}
	}
	socks, err := proxy.SOCKS5("tcp", w.proxy.Host, auth, dialer)
	if err != nil {
		return nil, wrapError(ProxyFailed, err, "the proxy can't be used")
	}
	conn, err := socks.(proxy.ContextDialer).DialContext(ctx, "tcp", w.address)
	if err != nil {
		if ctx.Err() != nil {
			return nil, w.connectionError(ctx, err)
		}
		return nil, wrapError(ProxyFailed, err, "%s can't be reached through the proxy", w.maskedURL)
	}
	return conn, nil
}

// handshake authenticates the server and the client.
func (w *sshTransport) handshake(ctx context.Context, conn net.Conn) (*ssh.Client, error) {
	keyOffered := false
	check := &hostKeyCheck{knownHosts: w.knownHosts}
	config := &ssh.ClientConfig{User: w.user, HostKeyCallback: check.callback,
		HostKeyAlgorithms: w.knownHosts.HostKeyAlgorithms(w.address),
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			keyOffered = true
			return []ssh.Signer{w.signer}, nil
		})}}
	c, channels, requests, err := ssh.NewClientConn(conn, w.address, config)
	switch {
	case err == nil:
		return ssh.NewClient(c, channels, requests), nil
	case ctx.Err() != nil:
		return nil, w.connectionError(ctx, err)
	case check.err != nil:
		return nil, check.hostKeyError(w.address, w.maskedURL)
	case keyOffered:
		return nil, wrapError(AuthenticationFailed, err, "%s rejects the private key (identity) of user %.80q",
			w.maskedURL, w.user)
	}
	if _, ok := errors.AsType[*ssh.AlgorithmNegotiationError](err); ok && len(config.HostKeyAlgorithms) > 0 {
		return nil, wrapError(HostKeyUnknown, err, "%s has no host key of the types that known_hosts has for it",
			w.maskedURL)
	}
	return nil, wrapError(OperationFailed, err, "the SSH handshake with %s failed", w.maskedURL)
}

// Read implements io.Reader. If the program ends without output, Read returns an error with
// its standard error.
func (s *sshStream) Read(p []byte) (int, error) {
	n, err := s.stdout.Read(p)
	s.received = s.received || n > 0
	if !errors.Is(err, io.EOF) || s.received {
		return n, err
	}
	s.received = true // return the error below only once
	if exit, ok := errors.AsType[*ssh.ExitError](s.session.Wait()); ok {
		operation := "read it"
		if s.transport.program == receivePack {
			operation = "write to it"
		}
		return n, newError(RepositoryNotFound,
			"there is no repository at %s, or this private key (identity) is not allowed to %s; the server program "+
				"exited with %d: %s",
			s.transport.maskedURL, operation, exit.ExitStatus(), s.transport.quoteServerText(s.stderr.String()))
	}
	return n, err
}

// Close implements io.Closer.
func (s *sshStream) Close() error {
	s.stop()
	_ = s.session.Close()
	return s.client.Close()
}

// boundedBuffer keeps the first maxBuffered bytes of the messages of a server, which it sends
// in addition to the response: standard error or progress. They are read after the last write.
type boundedBuffer struct{ buf bytes.Buffer }

// Write implements io.Writer.
func (s *boundedBuffer) Write(p []byte) (int, error) {
	s.buf.Write(p[:min(len(p), maxBuffered-s.buf.Len())])
	return len(p), nil
}

// String returns the kept messages.
func (s *boundedBuffer) String() string { return s.buf.String() }
