package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact"
)

// Keys of the Secret of an agent.
const (
	// CAKey has the certificates that the agent's is verified against.
	CAKey = "ca.crt"
	// CertKey and KeyKey are the certificate that we show.
	CertKey = "tls.crt"
	KeyKey  = "tls.key"
	// TokenKey is shown as a bearer token, instead or besides.
	TokenKey = "token"
)

// maxToken is the longest token that is taken, in bytes.
const maxToken = 8 << 10

// access is how an agent is reached.
type access struct {
	transport credentials.TransportCredentials
	// token is shown with each call; "": none is.
	token string
}

// accessOf reads how an agent is reached from its endpoint and what its Secret holds.
func accessOf(e *appsv1.AgentEndpoint, secret map[string][]byte) (*access, error) {
	host, err := hostOf(e.Address)
	if err != nil {
		return nil, err
	}
	if e.Plaintext {
		return &access{transport: insecure.NewCredentials()}, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(e.ServerName, host), RootCAs: x509.NewCertPool()}
	switch ca := secret[CAKey]; {
	case len(ca) == 0:
		return nil, &SecretError{CAKey, "it has no " + CAKey + ": add the certificates that the agent's is verified against"}
	case !cfg.RootCAs.AppendCertsFromPEM(ca):
		return nil, &SecretError{CAKey, "its " + CAKey + " holds no certificate in PEM"}
	}
	if len(secret[CertKey]) > 0 || len(secret[KeyKey]) > 0 {
		pair, err := pairOf(secret)
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	token, err := tokenOf(secret)
	if err != nil {
		return nil, err
	}
	if token == "" && len(cfg.Certificates) == 0 {
		return nil, &SecretError{CertKey, fmt.Sprintf("it has neither %s and %s, nor %s: add what the agent knows us by", CertKey, KeyKey, TokenKey)}
	}
	return &access{transport: credentials.NewTLS(cfg), token: token}, nil
}

// hostOf is the host of an address that may be dialled.
func hostOf(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", &AddressError{"want <host>:<port>"}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", &AddressError{"its port is none: want 1 to 65535"}
	}
	if err := artifact.RefuseHost(address); err != nil {
		return "", &AddressError{"link-local and multicast addresses are never dialled"}
	}
	return host, nil
}

// pairOf is the certificate that we show. Errors of the parsers are left out: they may
// quote what they read.
func pairOf(secret map[string][]byte) (tls.Certificate, error) {
	for _, key := range []string{CertKey, KeyKey} {
		if len(secret[key]) == 0 {
			return tls.Certificate{}, &SecretError{key, fmt.Sprintf("it has one of %s and %s without the other: add %s", CertKey, KeyKey, key)}
		}
	}
	if !x509.NewCertPool().AppendCertsFromPEM(secret[CertKey]) {
		return tls.Certificate{}, &SecretError{CertKey, "its " + CertKey + " holds no certificate in PEM"}
	}
	if !holdsKey(secret[KeyKey]) {
		return tls.Certificate{}, &SecretError{KeyKey, "its " + KeyKey + " holds no private key in PEM that is not encrypted"}
	}
	pair, err := tls.X509KeyPair(secret[CertKey], secret[KeyKey])
	if err != nil {
		return tls.Certificate{}, &SecretError{KeyKey, "its " + KeyKey + " can't be read, or is that of another certificate than " + CertKey}
	}
	return pair, nil
}

// holdsKey is true for PEM with a private key that needs no password.
func holdsKey(data []byte) bool {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") && block.Type != "ENCRYPTED PRIVATE KEY" && block.Headers["DEK-Info"] == "" {
			return true
		}
		data = rest
	}
}

// tokenOf is the token of a Secret, without the line end that files have.
func tokenOf(secret map[string][]byte) (string, error) {
	token := strings.TrimRight(string(secret[TokenKey]), "\r\n")
	if token == "" {
		return "", nil
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(token) > maxToken || strings.ContainsFunc(token, odd) {
		return "", &SecretError{TokenKey, fmt.Sprintf("its %s is none: want one line of at most %d printable characters without spaces", TokenKey, maxToken)}
	}
	return token, nil
}

// bearer shows a token with each call, and never without TLS.
type bearer string

var _ credentials.PerRPCCredentials = bearer("")

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
