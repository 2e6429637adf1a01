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

// Repository says where a repository is, and how to get in.
type Repository struct {
	// URL of the scheme https, http or ssh.
	URL string
	// Access is what opens it.
	Access Access
}

// Access is what opens a repository. Its values never stand in an error, also
// where a server repeats them.
type Access struct {
	// Username and Password, for https and http.
	Username, Password string
	// BearerToken to use instead.
	BearerToken string
	// CA are certificate authorities, in PEM, that are trusted beside those of the system.
	CA []byte
	// Identity is the private key for ssh, in PEM, and IdentityPassword opens it.
	Identity         []byte
	IdentityPassword string
	// KnownHosts are the keys that servers may have for ssh, as in the file of OpenSSH.
	KnownHosts []byte
	// Proxy to go through: of the scheme http, https or socks5; for ssh, of socks5.
	Proxy *url.URL
}

// TLS is what servers are checked with; nil: as the system does. The error is an *Error.
func (a *Access) TLS() (*tls.Config, error) {
	if len(a.CA) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a system without authorities
	}
	if !pool.AppendCertsFromPEM(a.CA) {
		return nil, fail(CredentialsInvalid, "the certificate authority (ca.crt) holds no certificate in PEM")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// secrets are what no error may hold.
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
	for _, secret := range all { // as it stands in quotes
		if quoted := strings.Trim(strconv.Quote(secret), `"`); quoted != secret {
			all = append(all, quoted)
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < minSecret })
	// Those that hold others first.
	slices.SortStableFunc(all, func(x, y string) int { return len(y) - len(x) })
	return slices.Compact(all)
}

// minSecret is the length from which on a secret is looked for: shorter ones
// stand in every other word.
const minSecret = 4

// mask replaces secrets in a text.
func mask(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

const maxSaying = 300

// saying is what a server said, for a message: cut short and in quotes, after
// secrets were taken out of it whole.
func saying(text string, secrets []string) string {
	text = mask(strings.TrimSpace(text), secrets)
	return strconv.Quote(text[:min(len(text), maxSaying)])
}

// wireTo is what talks to the server of a repository: to the program that reads it, or to
// the one that writes.
func (c *Client) wireTo(repo Repository, program string) (wire, *url.URL, error) {
	u, err := url.Parse(repo.URL)
	if err != nil || u.Host == "" {
		return nil, nil, fail(URLInvalid, "%s is not a URL of a repository", artifact.MaskURL(repo.URL))
	}
	masked := artifact.MaskURL(repo.URL)
	switch u.Scheme {
	case "http", "https":
		w, err := c.httpWire(u, &repo.Access, program, masked)
		return w, u, err
	case "ssh":
		w, err := c.sshWire(u, &repo.Access, program, masked)
		return w, u, err
	}
	return nil, nil, fail(URLInvalid, "%s is not a URL of https, http or ssh", masked)
}
