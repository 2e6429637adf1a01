package codec

import (
	"context"
	"crypto/x509"
	"net"
	"time"

	"github.com/ksctl/gitops/stacks/sops"
)

// Limits bound what one file may cost. A zero field takes the default.
type Limits struct {
	// Bytes is the largest file.
	Bytes int
	// Keys is the largest number of keys that a file may be encrypted to.
	Keys int
	// Requests is how many of them may be asked of key services.
	Requests int
	// RequestTimeout is how long one of these may take.
	RequestTimeout time.Duration
	// RequestsTimeout is how long all of them may take together: less than the minute that the
	// program has which works on a file, so that it can say that it was a key service.
	RequestsTimeout time.Duration
}

// DefaultLimits are generous for files that people edit.
func DefaultLimits() Limits {
	return Limits{Bytes: 5 << 20, Keys: 200, Requests: 20, RequestTimeout: 15 * time.Second, RequestsTimeout: 45 * time.Second}
}

// WithDefaults fills in the fields that are zero.
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

// Options say what decrypting may do. The zero value is the safest.
type Options struct {
	// Limits of the file.
	Limits Limits
	// AllowHTTP lets a Vault be asked without TLS. The token then goes in the clear.
	AllowHTTP bool
	// AllowLoopback lets requests go to this machine, as a command line may want.
	AllowLoopback bool
	// RootCAs are trusted instead of the system's, where the Secret names none.
	RootCAs *x509.CertPool

	// dial is the network of tests, instead of the guarded one.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Decrypter is Decrypt for the contract of package sops.
func Decrypter(o Options) sops.Decrypter {
	return func(ctx context.Context, r sops.Request) ([]byte, error) {
		keys, err := KeysFromSecret(r.Secret)
		if err != nil {
			return nil, err
		}
		return Decrypt(ctx, r.Data, r.Format, keys, o)
	}
}

// Encrypter is Encrypt for the contract of package sops.
func Encrypter(l Limits) sops.Encrypter {
	return func(_ context.Context, r sops.EncryptRequest) ([]byte, error) {
		return Encrypt(r.Data, r.Format, r.Recipients, EncryptOptions{EncryptedRegex: r.EncryptedRegex, UnencryptedRegex: r.UnencryptedRegex, Limits: l})
	}
}
