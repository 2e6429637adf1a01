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
	// CAKey holds the CA certificates that the agent's certificate is verified against.
	CAKey = "ca.crt"
	// CertKey and KeyKey hold the client certificate and its private key.
	CertKey = "tls.crt"
	KeyKey  = "tls.key"
	// TokenKey holds a bearer token, which replaces or accompanies the client certificate.
	TokenKey = "token"
)

// maxTokenBytes is the maximum length of a token.
const maxTokenBytes = 8 << 10

// credentialsFor validates the endpoint and the Secret of an agent and returns the credentials of a
// connection and the bearer token of each call; "" sends none. Errors are *SecretError and
// *AddressError.
func credentialsFor(e *appsv1.AgentEndpoint, secret map[string][]byte) (
	transport credentials.TransportCredentials, token string, err error) {
	host, err := validateAddress(e.Address)
	if err != nil {
		return nil, "", err
	}
	if e.Plaintext {
		return insecure.NewCredentials(), "", nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(e.ServerName, host),
		RootCAs: x509.NewCertPool()}
	switch ca := secret[CAKey]; {
	case len(ca) == 0:
		return nil, "",
			&SecretError{"key " + CAKey +
				" is missing: add the CA certificates that the agent's certificate is verified against"}
	case !cfg.RootCAs.AppendCertsFromPEM(ca):
		return nil, "", &SecretError{"key " + CAKey + " holds no PEM certificate"}
	}
	if len(secret[CertKey]) > 0 || len(secret[KeyKey]) > 0 {
		pair, err := clientCertificate(secret)
		if err != nil {
			return nil, "", err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if token, err = bearerToken(secret); err != nil {
		return nil, "", err
	}
	if token == "" && len(cfg.Certificates) == 0 {
		return nil, "",
			&SecretError{fmt.Sprintf("client credentials are missing: add keys %s and %s, or key %s", CertKey, KeyKey,
				TokenKey)}
	}
	return credentials.NewTLS(cfg), token, nil
}

// validateAddress returns the host of an address, or an *AddressError if the address is invalid or
// must not be dialed.
func validateAddress(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return "", &AddressError{"want <host>:<port>"}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", &AddressError{"invalid port: want 1 to 65535"}
	}
	if err := artifact.CheckHost(address); err != nil {
		return "", &AddressError{"link-local and multicast addresses are not allowed"}
	}
	return host, nil
}

// clientCertificate returns the client certificate of a Secret. Its errors omit those of the
// parsers, which may quote the key.
func clientCertificate(secret map[string][]byte) (pair tls.Certificate, err error) {
	for _, key := range []string{CertKey, KeyKey} {
		if len(secret[key]) == 0 {
			return pair, &SecretError{fmt.Sprintf("key %s is missing: %s and %s must be set together", key, CertKey,
				KeyKey)}
		}
	}
	if !x509.NewCertPool().AppendCertsFromPEM(secret[CertKey]) {
		return pair, &SecretError{"key " + CertKey + " holds no PEM certificate"}
	}
	if !hasPrivateKey(secret[KeyKey]) {
		return pair, &SecretError{"key " + KeyKey + " holds no unencrypted PEM private key"}
	}
	if pair, err = tls.X509KeyPair(secret[CertKey], secret[KeyKey]); err != nil {
		return pair, &SecretError{"key " + KeyKey + " can't be parsed, or does not match the certificate of key " +
			CertKey}
	}
	return pair, nil
}

// hasPrivateKey reports whether PEM data holds a private key that is not encrypted.
func hasPrivateKey(data []byte) bool {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return false
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") && block.Type != "ENCRYPTED PRIVATE KEY" &&
			block.Headers["DEK-Info"] == "" {
			return true
		}
		data = rest
	}
}

// bearerToken returns the token of a Secret without trailing line breaks, which token files have;
// "" if there is none.
func bearerToken(secret map[string][]byte) (string, error) {
	token := strings.TrimRight(string(secret[TokenKey]), "\r\n")
	if token == "" {
		return "", nil
	}
	invalid := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(token) > maxTokenBytes || strings.ContainsFunc(token, invalid) {
		return "", &SecretError{fmt.Sprintf("key %s is invalid: want one line of at most %d printable ASCII "+
			"characters without spaces", TokenKey, maxTokenBytes)}
	}
	return token, nil
}

// tokenCredentials sends a bearer token with each call. gRPC refuses it on connections without TLS.
type tokenCredentials string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b tokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenCredentials) RequireTransportSecurity() bool { return true }
