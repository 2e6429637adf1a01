package oci

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Scheme is the prefix of repository URLs.
const Scheme = "oci://"

const userAgent = "ksctl-gitops"

// Options configures a Client. Zero fields take the defaults.
type Options struct {
	// Limits of one artifact.
	Limits artifact.Limits
	// TempDir holds downloaded layers; the system's directory when empty.
	TempDir string
	// Backoff is the time before the first retry of a request to an overloaded registry;
	// it doubles for the next retry. 250ms when zero.
	Backoff time.Duration
}

// Client reads registries. It is safe for concurrent use.
type Client struct {
	limits  artifact.Limits
	tempDir string
	backoff time.Duration
}

// NewClient returns a client.
func NewClient(o Options) *Client {
	return &Client{limits: o.Limits.WithDefaults(), tempDir: cmp.Or(o.TempDir, os.TempDir()),
		backoff: cmp.Or(o.Backoff, 250*time.Millisecond)}
}

// Access configures how a registry is reached. The zero value is anonymous, uses https,
// the system's certificate authorities and the proxy of the environment.
type Access struct {
	// Keychain returns the credentials. They are sent only to the registry that they
	// belong to, and to the token service that this registry names.
	Keychain authn.Keychain
	// TLS holds the trusted certificate authorities and the client certificate.
	TLS *tls.Config
	// Proxy is the proxy to use.
	Proxy *url.URL
	// Insecure allows plain http.
	Insecure bool
}

// Repository is a session with a repository of a registry. The session bounds the
// number of requests and received bytes: open a new one for each reconciliation.
type Repository struct {
	client    *Client
	name      name.Repository
	keychain  authn.Keychain
	transport http.RoundTripper
	http      *http.Client
	puller    *remote.Puller
}

// Repository opens the repository at an oci:// URL. It makes no request. The caller must
// close the repository. The error is an *Error.
func (c *Client) Repository(rawURL string, a Access) (*Repository, error) {
	path, ok := strings.CutPrefix(rawURL, Scheme)
	if !ok {
		return nil, newError(URLInvalid, "%.200q is not a repository URL; expected oci://<registry>/<repository>",
			rawURL)
	}
	options := []name.Option{name.StrictValidation}
	if a.Insecure {
		options = append(options, name.Insecure)
	}
	repo, err := name.NewRepository(path, options...)
	if err != nil {
		// Not err: it repeats the URL, which may contain a password by mistake.
		return nil, newError(URLInvalid,
			"%s is not a repository URL; expected oci://<registry>/<repository>, with the tag or digest only in ref",
			artifact.MaskURL(rawURL))
	}
	client := artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: a.TLS, Proxy: a.Proxy})
	r := &Repository{client: c, name: repo, keychain: a.Keychain, http: client,
		transport: newLimitedTransport(NewCredentialGuard(client.Transport, repo.RegistryStr()), a.Insecure)}
	if r.keychain == nil {
		r.keychain = authn.NewMultiKeychain()
	}
	if r.puller, err = remote.NewPuller(r.options()...); err != nil {
		return nil, wrapError(URLInvalid, err, "%s can't be read", repo)
	}
	return r, nil
}

// Close closes idle connections.
func (r *Repository) Close() { r.http.CloseIdleConnections() }

// String returns the registry and the repository.
func (r *Repository) String() string { return r.name.String() }

func (r *Repository) options() []remote.Option {
	return []remote.Option{
		remote.WithTransport(r.transport), remote.WithAuthFromKeychain(r.keychain), remote.WithUserAgent(userAgent),
		remote.WithRetryPredicate(isTemporary),
		remote.WithRetryBackoff(remote.Backoff{Duration: r.client.backoff, Factor: 2, Jitter: 0.1, Steps: 3}),
	}
}

// anonymous is true if there are no credentials for the repository.
func (r *Repository) anonymous() bool {
	auth, err := r.keychain.Resolve(r.name)
	return err == nil && auth == authn.Anonymous
}
