package git

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ksctl/gitops/stacks/artifact"
)

// Repository is the URL of a repository with the credentials for it.
type Repository struct {
	// URL with the scheme https, http or ssh.
	URL string
	// Access holds the credentials.
	Access Access
}

// Access holds the credentials and connection settings of a repository. Errors never
// contain its secrets, even if a server repeats them.
type Access struct {
	// Username and Password, for https and http.
	Username, Password string
	// BearerToken to use instead.
	BearerToken string
	// CA holds certificate authorities in PEM that are trusted in addition to the system's.
	CA []byte
	// Identity is the private key for ssh in PEM, and IdentityPassword decrypts it.
	Identity         []byte
	IdentityPassword string
	// KnownHosts holds the host keys for ssh, in the format of OpenSSH's known_hosts file.
	KnownHosts []byte
	// Proxy has the scheme http, https or socks5; for ssh it must be socks5.
	Proxy *url.URL
}

// TLSConfig returns the TLS configuration with CA, and nil for the system's default if there
// is no CA. The error is an *Error.
func (a *Access) TLSConfig() (*tls.Config, error) {
	if len(a.CA) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a system without authorities
	}
	if !pool.AppendCertsFromPEM(a.CA) {
		return nil, newError(CredentialsInvalid, "the certificate authority (ca.crt) contains no certificate in PEM")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// secrets returns the texts that must not appear in errors, with their encoded forms.
func (a *Access) secrets(u *url.URL) []string {
	all := []string{a.Password, a.BearerToken, a.IdentityPassword}
	logins := []*url.Userinfo{u.User, url.UserPassword(a.Username, a.Password)}
	if a.Proxy != nil {
		logins = append(logins, a.Proxy.User)
	}
	for _, login := range logins {
		if password, ok := login.Password(); ok && password != "" {
			all = append(all, password, url.QueryEscape(password), url.PathEscape(password),
				base64.StdEncoding.EncodeToString([]byte(login.Username()+":"+password)))
		}
	}
	for _, line := range strings.Split(string(a.Identity), "\n") {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
			all = append(all, line)
		}
	}
	for _, secret := range all { // the form in quoted texts
		if quoted := strings.Trim(strconv.Quote(secret), `"`); quoted != secret {
			all = append(all, quoted)
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < minSecretLength })
	// Longer secrets first, because they can contain shorter ones.
	slices.SortStableFunc(all, func(x, y string) int { return len(y) - len(x) })
	return slices.Compact(all)
}

// minSecretLength is the minimum length of secrets that are masked: shorter ones occur in
// ordinary words.
const minSecretLength = 4

// mask replaces secrets in a text.
func mask(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

const maxServerText = 300

// quoteServerText returns a text of a server for a message: truncated and quoted. It masks
// secrets before it truncates, so that no part of a secret remains.
func (e *endpoint) quoteServerText(text string) string {
	text = mask(strings.TrimSpace(text), e.secrets)
	return strconv.Quote(text[:min(len(text), maxServerText)])
}

// newTransport returns a transport to a program of the repository's server: the one that
// reads the repository, or the one that writes to it.
func (c *Client) newTransport(repo Repository, program string) (transport, endpoint, error) {
	e := endpoint{maskedURL: artifact.MaskURL(repo.URL)}
	u, err := url.Parse(repo.URL)
	if err != nil || u.Host == "" {
		return nil, e, newError(URLInvalid, "%s is not a repository URL", e.maskedURL)
	}
	e.secrets = repo.Access.secrets(u)
	var w transport
	switch u.Scheme {
	case "http", "https":
		w, err = c.newHTTPTransport(u, &repo.Access, program, e)
	case "ssh":
		w, err = c.newSSHTransport(u, &repo.Access, program, e)
	default:
		err = newError(URLInvalid, "%s must have the scheme https, http or ssh", e.maskedURL)
	}
	return w, e, err
}
