package oci

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Scheme begins the URL of a repository.
const Scheme = "oci://"

const userAgent = "ksctl-gitops"

// Options of a Client. Zero fields take the defaults.
type Options struct {
	// Limits of one artifact.
	Limits artifact.Limits
	// TempDir holds layers while they are worked on; the system's when empty.
	TempDir string
	// Backoff is the time before a registry that is overloaded is asked again,
	// twice as long before the next time; 250ms when zero.
	Backoff time.Duration
}

// Client reads registries. Many callers may use it at once.
type Client struct {
	limits  artifact.Limits
	temp    string
	backoff time.Duration
}

// NewClient makes a client.
func NewClient(o Options) *Client {
	c := &Client{limits: o.Limits.WithDefaults(), temp: o.TempDir, backoff: o.Backoff}
	if c.backoff == 0 {
		c.backoff = 250 * time.Millisecond
	}
	return c
}

// Access says how a registry is reached. The zero value is anonymous, over
// https, trusts what the system trusts and takes the proxy of the environment.
type Access struct {
	// Keychain knows the credentials. They are given to the registry that they
	// are for, and to the token service that it names.
	Keychain authn.Keychain
	// TLS holds the certificate authorities to trust, and the certificate to show.
	TLS *tls.Config
	// Proxy to go through.
	Proxy *url.URL
	// Insecure allows plain http.
	Insecure bool
}

// Repository is a repository of a registry, in a session that is bounded: take
// a new one for each time that it is looked at.
type Repository struct {
	client    *Client
	name      name.Repository
	keychain  authn.Keychain
	transport http.RoundTripper
	http      *http.Client
	puller    *remote.Puller
}

// Repository gives the repository at an oci:// URL. It makes no request. The
// caller closes it. The error is an *Error.
func (c *Client) Repository(rawURL string, a Access) (*Repository, error) {
	path, ok := strings.CutPrefix(rawURL, Scheme)
	if !ok {
		return nil, fail(URLInvalid, "%.200q is not the URL of a repository; expected oci://<registry>/<repository>", rawURL)
	}
	options := []name.Option{name.StrictValidation}
	if a.Insecure {
		options = append(options, name.Insecure)
	}
	repo, err := name.NewRepository(path, options...)
	if err != nil {
		// The cause repeats the URL, which may hold a password by mistake.
		return nil, fail(URLInvalid, "%s is not the URL of a repository; expected oci://<registry>/<repository>, with the tag or digest in ref alone", artifact.MaskURL(rawURL))
	}
	client := artifact.NewHTTPClientWith(artifact.ClientOptions{TLS: a.TLS, Proxy: a.Proxy})
	r := &Repository{client: c, name: repo, keychain: a.Keychain, http: client, transport: newBounded(NewGuard(client.Transport, repo.RegistryStr()), a.Insecure)}
	if r.keychain == nil {
		r.keychain = authn.NewMultiKeychain()
	}
	if r.puller, err = remote.NewPuller(r.options()...); err != nil {
		return nil, failBy(URLInvalid, err, "%s can't be read", repo)
	}
	return r, nil
}

// Close ends the connections that are kept for further requests.
func (r *Repository) Close() { r.http.CloseIdleConnections() }

// String is registry and repository.
func (r *Repository) String() string { return r.name.String() }

func (r *Repository) options() []remote.Option {
	return []remote.Option{
		remote.WithTransport(r.transport), remote.WithAuthFromKeychain(r.keychain), remote.WithUserAgent(userAgent),
		remote.WithRetryPredicate(temporary),
		remote.WithRetryBackoff(remote.Backoff{Duration: r.client.backoff, Factor: 2, Jitter: 0.1, Steps: 3}),
	}
}

// anonymous is true when there are no credentials for the repository.
func (r *Repository) anonymous() bool {
	auth, err := r.keychain.Resolve(r.name)
	return err == nil && auth == authn.Anonymous
}
