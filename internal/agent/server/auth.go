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
)

// Identity holds the paths of the files with the agent's certificate and with the credentials that
// callers are authenticated by.
type Identity struct {
	// CertFile and KeyFile are the agent's certificate and private key, as PEM.
	CertFile, KeyFile string
	// ClientCAFile holds the CA certificates, as PEM, that client certificates are verified
	// against; "" accepts no client certificates.
	ClientCAFile string
	// TokenFile holds the accepted bearer tokens, one per line; "" accepts no tokens.
	TokenFile string
}

// minTokenBytes is the minimum length of a token.
const minTokenBytes = 16

// authenticator authenticates callers by their client certificate or bearer token.
type authenticator struct {
	certificate *reloader[*tls.Certificate]
	clientCAs   *reloader[*x509.CertPool]
	tokens      *reloader[[][sha256.Size]byte]
}

// newAuthenticator reads the files of an identity. It reloads them when they change.
func newAuthenticator(id Identity, log logr.Logger) (*authenticator, error) {
	if id.ClientCAFile == "" && id.TokenFile == "" {
		return nil, errors.New("callers can't be authenticated: set --client-ca, --token-file or both")
	}
	var g authenticator
	var err error
	if g.certificate, err = newReloader(log, parseKeyPair, id.CertFile, id.KeyFile); err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	if id.ClientCAFile != "" {
		if g.clientCAs, err = newReloader(log, parseCAs, id.ClientCAFile); err != nil {
			return nil, fmt.Errorf("--client-ca: %w", err)
		}
	}
	if id.TokenFile != "" {
		if g.tokens, err = newReloader(log, parseTokens, id.TokenFile); err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
	}
	return &g, nil
}

func parseKeyPair(contents [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	return &pair, err
}

func parseCAs(contents [][]byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(contents[0]) {
		return nil, errors.New("no PEM certificate found")
	}
	return pool, nil
}

func parseTokens(contents [][]byte) (out [][sha256.Size]byte, err error) {
	for token := range bytes.Lines(contents[0]) {
		if token = bytes.TrimSpace(token); len(token) == 0 {
			continue
		}
		if len(token) < minTokenBytes {
			return nil, fmt.Errorf("a token is shorter than %d bytes", minTokenBytes)
		}
		out = append(out, sha256.Sum256(token))
	}
	if len(out) == 0 {
		return nil, errors.New("no token found")
	}
	return out, nil
}

// tlsConfig returns the TLS configuration of the server. It only requests client certificates.
// authenticate verifies them with each call, so that callers without a valid one get the status
// Unauthenticated, and one that expires or loses its CA is rejected on open connections, too.
func (g *authenticator) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return g.certificate.get(), nil }}
	if g.clientCAs != nil {
		c.ClientAuth = tls.RequestClientCert
	}
	return c
}

// healthMethodPrefix is the prefix of the methods that need no authentication.
const healthMethodPrefix = "/grpc.health.v1.Health/"

// authenticate returns nil if the method needs no authentication, or the caller has a valid client
// certificate or token, and a gRPC status error otherwise.
func (g *authenticator) authenticate(ctx context.Context, method string) error {
	if strings.HasPrefix(method, healthMethodPrefix) ||
		g.clientCAs != nil && g.hasValidCertificate(ctx) || g.tokens != nil && g.hasValidToken(ctx) {
		return nil
	}
	return status.Error(codes.Unauthenticated,
		"the caller is not authenticated: send a valid client certificate or bearer token")
}

// hasValidCertificate reports whether the caller has a client certificate that a known CA signed.
func (g *authenticator) hasValidCertificate(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return false
	}
	chain := info.State.PeerCertificates
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: g.clientCAs.get(), Intermediates: intermediates,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// hasValidToken reports whether the caller sent a known token. It compares in constant time, so
// that its duration reveals nothing about the known tokens.
func (g *authenticator) hasValidToken(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
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
