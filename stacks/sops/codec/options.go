package codec

import (
	"context"
	"crypto/x509"
	"net"
	"time"
)

// Limits of one file. They are generous for files that people edit.
const (
	// maxBytes is the maximum size of a file.
	maxBytes = 5 << 20
	// maxKeys is the maximum number of keys that a file may be encrypted for.
	maxKeys = 200
	// maxRequests is the maximum number of requests to key services.
	maxRequests = 20
)

// options are the options of requests to key services.
type options struct {
	// requestTimeout is the timeout of one request.
	requestTimeout time.Duration
	// requestsTimeout is the timeout of all requests together. It is less than the minute that a
	// decryption process has for a file, so that the error can name the key service.
	requestsTimeout time.Duration
	// roots and dial replace the CAs of the system and the guarded dialer in tests.
	roots *x509.CertPool
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

func defaultOptions() options {
	return options{requestTimeout: 15 * time.Second, requestsTimeout: 45 * time.Second}
}
