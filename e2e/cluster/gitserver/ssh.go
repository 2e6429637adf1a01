package gitserver

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSH serves the repositories of a [Server] over SSH.
type SSH struct {
	server   *Server
	listener net.Listener
	config   *ssh.ServerConfig
	host     ssh.PublicKey
	conns    atomic.Int64
	running  sync.WaitGroup
	cancel   context.CancelFunc
	ctx      context.Context
}

// Key is an SSH key pair.
type Key struct {
	// Public is the public key in the format of authorized_keys.
	Public string
	// Private is the private key in PEM, encrypted if it has a password.
	Private []byte
	signer  ssh.Signer
}

// NewKey creates a key pair. With an empty password the private key is not encrypted.
func NewKey(password string) (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "e2e")
	if password != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "e2e", []byte(password))
	}
	if err != nil {
		return nil, err
	}
	return &Key{Public: string(ssh.MarshalAuthorizedKey(signer.PublicKey())), Private: pem.EncodeToMemory(block),
		signer: signer}, nil
}

// ServeSSH serves the repositories on another free port to clients with the given key, until
// [SSH.Close].
func (s *Server) ServeSSH(client *Key) (*SSH, error) {
	host, err := NewKey("")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d := &SSH{server: s, listener: listener, host: host.signer.PublicKey()}
	d.config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata,
		key ssh.PublicKey) (*ssh.Permissions, error) {
		if bytes.Equal(key.Marshal(), client.signer.PublicKey().Marshal()) {
			return nil, nil
		}
		return nil, errors.New("unknown public key")
	}}
	d.config.AddHostKey(host.signer)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.running.Go(d.accept)
	return d, nil
}

// URL returns the SSH URL of a repository.
func (d *SSH) URL(r *Repo) string {
	return "ssh://git@" + d.listener.Addr().String() + "/" + r.name + ".git"
}

// KnownHosts returns the known_hosts line with the server's host key.
func (d *SSH) KnownHosts() string {
	return knownhosts.Line([]string{d.listener.Addr().String()}, d.host) + "\n"
}

// Connections returns the number of connections accepted.
func (d *SSH) Connections() int64 { return d.conns.Load() }

// Close ends all connections and waits for them.
func (d *SSH) Close() error {
	d.cancel()
	err := d.listener.Close()
	d.running.Wait()
	return err
}

func (d *SSH) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.conns.Add(1)
		d.running.Go(func() {
			stop := context.AfterFunc(d.ctx, func() { _ = conn.Close() })
			defer stop()
			d.serve(conn)
		})
	}
}

func (d *SSH) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	c, channels, requests, err := ssh.NewServerConn(conn, d.config)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	d.running.Go(func() { ssh.DiscardRequests(requests) })
	for newChannel := range channels {
		if newChannel.ChannelType() != "session" {
			_ = newChannel.Reject(ssh.UnknownChannelType, "sessions only")
			continue
		}
		channel, requests, err := newChannel.Accept()
		if err != nil {
			return
		}
		d.running.Go(func() { d.session(channel, requests) })
	}
}

// session runs the first exec request of a session.
func (d *SSH) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer func() { _ = channel.Close() }()
	for req := range requests {
		var exec struct{ Command string }
		ok := req.Type == "exec" && ssh.Unmarshal(req.Payload, &exec) == nil
		_ = req.Reply(ok, nil)
		if !ok {
			continue
		}
		status := d.run(channel, exec.Command)
		_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
		return
	}
}

func (d *SSH) run(channel ssh.Channel, command string) uint32 {
	program, path, ok := strings.Cut(command, " '/")
	path, quoted := strings.CutSuffix(path, "'")
	known := program == "git-upload-pack" || program == "git-receive-pack"
	if !ok || !known || !quoted || strings.Contains(path, "..") {
		_, _ = fmt.Fprintf(channel.Stderr(), "not allowed: %s\n", command)
		return 128
	}
	cmd := exec.CommandContext(d.ctx, d.server.git, strings.TrimPrefix(program, "git-"), path)
	cmd.Dir, cmd.Env = d.server.dir, d.server.environ()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 1
	}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	// Not cmd.Stdin: cmd.Run would wait for the copy, which a client that vanished never ends.
	d.running.Go(func() {
		_, _ = io.Copy(stdin, channel)
		_ = stdin.Close()
	})
	if cmd.Run() != nil {
		return 128
	}
	return 0
}
