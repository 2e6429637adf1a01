package codec

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/ksctl/gitops/stacks/sops"
)

// Limits limit the cost of one file. A zero field takes the default.
type Limits struct {
	// Bytes is the maximum size of a file.
	Bytes int
	// Keys is the maximum number of keys that a file may be encrypted for.
	Keys int
	// Requests is the maximum number of requests to key services.
	Requests int
	// RequestTimeout is the timeout of one request.
	RequestTimeout time.Duration
	// RequestsTimeout is the timeout of all requests together. It is less than the minute that a
	// decryption process has for a file, so that the error can name the key service.
	RequestsTimeout time.Duration
}

// DefaultLimits returns limits that are generous for files that people edit.
func DefaultLimits() Limits {
	return Limits{Bytes: 5 << 20, Keys: 200, Requests: 20, RequestTimeout: 15 * time.Second, RequestsTimeout: 45 * time.Second}
}

// WithDefaults returns the limits with defaults for the zero fields.
func (l Limits) WithDefaults() Limits {
	d := DefaultLimits()
	for _, f := range []struct {
		field *int
		value int
	}{{&l.Bytes, d.Bytes}, {&l.Keys, d.Keys}, {&l.Requests, d.Requests}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if l.RequestTimeout == 0 {
		l.RequestTimeout = d.RequestTimeout
	}
	if l.RequestsTimeout == 0 {
		l.RequestsTimeout = d.RequestsTimeout
	}
	return l
}

// Options configure decryption. The zero value is the safest.
type Options struct {
	// Limits apply to the file.
	Limits Limits
	// AllowHTTP allows requests to a Vault without TLS. They send the token in clear text.
	AllowHTTP bool
	// AllowLoopback allows requests to this machine, for command lines.
	AllowLoopback bool
	// RootCAs are trusted instead of those of the system, unless the Secret has some.
	RootCAs *x509.CertPool

	// dial replaces the guarded dialer in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Decrypter returns Decrypt as a sops.Decrypter.
func Decrypter(o Options) sops.Decrypter {
	return func(ctx context.Context, r sops.Request) ([]byte, error) {
		keys, err := KeysFromSecret(r.Secret)
		if err != nil {
			return nil, err
		}
		return Decrypt(ctx, r.Data, r.Format, keys, o)
	}
}

// Encrypter returns Encrypt as a sops.Encrypter.
func Encrypter(l Limits) sops.Encrypter {
	return func(_ context.Context, r sops.EncryptRequest) ([]byte, error) {
		return Encrypt(r.Data, r.Format, r.Recipients, EncryptOptions{EncryptedRegex: r.EncryptedRegex, UnencryptedRegex: r.UnencryptedRegex, Limits: l})
	}
}
