package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
)

// Identity names the files that the agent proves by who it is, and knows callers by.
type Identity struct {
	// CertFile and KeyFile are the agent's own, as PEM.
	CertFile, KeyFile string
	// ClientCAFile has the authorities, as PEM, whose certificates callers may have; "": none.
	ClientCAFile string
	// TokenFile has the tokens that callers may bring, one a line; "": none.
	TokenFile string
}

// shortestToken is the least that is taken for a secret, in bytes.
const shortestToken = 16

// gate lets those call who are known.
type gate struct {
	own    *fresh[*tls.Certificate]
	roots  *fresh[*x509.CertPool]
	tokens *fresh[[][sha256.Size]byte]
	clock  clock.PassiveClock
}

// newGate reads the files of an identity. They are read again when they change.
func newGate(id Identity, c clock.PassiveClock, log logr.Logger) (*gate, error) {
	if id.CertFile == "" || id.KeyFile == "" {
		return nil, errors.New("TLS needs a certificate and its key: set --tls-cert and --tls-key, or --plaintext")
	}
	if id.ClientCAFile == "" && id.TokenFile == "" {
		return nil, errors.New("nobody could call: set --client-ca, for callers with certificates, or --token-file, or both")
	}
	g := &gate{clock: c}
	var err error
	if g.own, err = newFresh(c, log, readPair, id.CertFile, id.KeyFile); err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	if id.ClientCAFile != "" {
		if g.roots, err = newFresh(c, log, readRoots, id.ClientCAFile); err != nil {
			return nil, fmt.Errorf("--client-ca: %w", err)
		}
	}
	if id.TokenFile != "" {
		if g.tokens, err = newFresh(c, log, readTokens, id.TokenFile); err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
	}
	return g, nil
}

func readPair(contents [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	return &pair, err
}

func readRoots(contents [][]byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents[0]) {
		return nil, errors.New("it has no certificate")
	}
	return pool, nil
}

func readTokens(contents [][]byte) (out [][sha256.Size]byte, err error) {
	for token := range bytes.Lines(contents[0]) {
		if token = bytes.TrimSpace(token); len(token) == 0 {
			continue
		}
		if len(token) < shortestToken {
			return nil, fmt.Errorf("a token has less than %d bytes", shortestToken)
		}
		out = append(out, sha256.Sum256(token))
	}
	if len(out) == 0 {
		return nil, errors.New("it has no token")
	}
	return out, nil
}

// tls is what the agent listens with. A caller's certificate is verified with each call, so that
// one which is not known is told so, and one that is no more stops being taken.
func (g *gate) tls() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.own.get(), nil }}
	if g.roots != nil {
		c.ClientAuth = tls.RequestClientCert
	}
	return c
}

// admit says why a caller may not call; nil: it may.
func (g *gate) admit(ctx context.Context) error {
	if g.roots != nil && g.certified(ctx) || g.tokens != nil && g.bearer(ctx) {
		return nil
	}
	return status.Error(codes.Unauthenticated, "who calls is not known here: bring a client certificate or a token that the agent knows")
}

// certified is true for a caller with a certificate of an authority that is known.
func (g *gate) certified(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return false
	}
	chain := info.State.PeerCertificates
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: g.roots.get(), Intermediates: between, CurrentTime: g.clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// bearer is true for a caller with a token that is known. How long it takes tells nothing of it.
func (g *gate) bearer(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	said := md.Get("authorization")
	if len(said) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(said[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return false
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	known := 0
	for _, have := range g.tokens.get() {
		known |= subtle.ConstantTimeCompare(sum[:], have[:])
	}
	return known == 1
}
