package chart

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/google/go-containerregistry/pkg/authn"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/verify"
)

// Secrets are the contents of the Secrets that say how to reach a repository.
type Secrets struct {
	// Credentials have username and password, bearerToken, or .dockerconfigjson.
	Credentials map[string][]byte
	// Certificates have ca.crt, tls.crt and tls.key.
	Certificates map[string][]byte
	// Keys are what signatures are verified with: keys, or a trusted root.
	Keys map[string][]byte
}

// Access is how to reach a repository. The zero value asks without credentials.
type Access struct {
	repo    appsv1.ChartRepository
	secrets Secrets

	auth authn.AuthConfig
	tls  *tls.Config
	// keyring verifies .prov files, signers manifests in a registry: one of them, or none.
	keyring openpgp.EntityList
	signers verify.Verifier
}

// For is the one of spec.charts that is about a repository; nil: none is. A slash at
// the end makes no other one, unless there is one for each: Chart.yaml and spec.charts
// may well differ in that.
func For(charts []appsv1.ChartRepository, repository string) (found *appsv1.ChartRepository) {
	for i := range charts {
		switch at := charts[i].Repository; {
		case at == repository:
			return &charts[i]
		case strings.TrimSuffix(at, "/") == strings.TrimSuffix(repository, "/"):
			found = &charts[i]
		}
	}
	return found
}

// SecretNames are the Secrets that a repository is reached with.
func SecretNames(repo *appsv1.ChartRepository) (names []string) {
	_, _ = ReadSecrets(repo, func(name string) (map[string][]byte, error) {
		names = append(names, name)
		return nil, nil
	})
	return names
}

// ReadSecrets reads the Secrets that a repository is reached with.
func ReadSecrets(repo *appsv1.ChartRepository, read func(name string) (map[string][]byte, error)) (out Secrets, err error) {
	if repo.SecretRef != nil {
		if out.Credentials, err = read(repo.SecretRef.Name); err != nil {
			return Secrets{}, err
		}
	}
	if repo.CertSecretRef != nil {
		if out.Certificates, err = read(repo.CertSecretRef.Name); err != nil {
			return Secrets{}, err
		}
	}
	if v := repo.Verify; v != nil {
		from := v.SecretRef
		if keyless(v) {
			from = v.TrustedRootSecretRef
		}
		if from == nil {
			return Secrets{}, fail(RepositoryInvalid, "spec.charts: %s: verify names no Secret with who is trusted", repo.Repository)
		}
		if out.Keys, err = read(from.Name); err != nil {
			return Secrets{}, err
		}
	}
	return out, nil
}

// NewAccess is how an install reaches a repository. What the Secrets hold is in no error.
func NewAccess(repo *appsv1.ChartRepository, secrets Secrets) (*Access, error) {
	a := &Access{repo: *repo, secrets: secrets}
	u, err := url.Parse(repo.Repository)
	if err != nil {
		return nil, fail(RepositoryInvalid, "the address of the repository can't be read")
	}
	if repo.Insecure && u.Scheme != "oci" {
		return nil, fail(RepositoryInvalid, "spec.charts: %s: insecure is for oci:// alone", repo.Repository)
	}
	if repo.SecretRef != nil {
		if a.auth, err = credentials(u, secrets.Credentials); err != nil {
			return nil, err
		}
	}
	if repo.CertSecretRef != nil {
		if a.tls, err = certificates(secrets.Certificates); err != nil {
			return nil, err
		}
	}
	if repo.Verify == nil {
		return a, nil
	}
	if err := a.verification(u.Scheme); err != nil {
		return nil, err
	}
	return a, nil
}

func credentials(u *url.URL, data map[string][]byte) (out authn.AuthConfig, err error) {
	if docker, ok := data[".dockerconfigjson"]; ok {
		if u.Scheme != "oci" {
			return out, fail(SecretInvalid, "the Secret with the credentials has a .dockerconfigjson, which is for oci://; username and password, or bearerToken, are expected")
		}
		return dockerAuth(u.Host, docker)
	}
	out.Username, out.Password = string(data["username"]), string(data["password"])
	out.RegistryToken = strings.TrimSpace(string(data["bearerToken"]))
	switch {
	case out.RegistryToken != "" && out.Username+out.Password != "":
		return out, fail(SecretInvalid, "the Secret with the credentials has both bearerToken and username or password; one of them is expected")
	case out.RegistryToken == "" && (out.Username == "" || out.Password == ""):
		return out, fail(SecretInvalid, "the Secret with the credentials has neither username and password nor bearerToken nor .dockerconfigjson")
	case strings.ContainsAny(out.RegistryToken, "\r\n\x00"):
		return out, fail(SecretInvalid, "bearerToken in the Secret with the credentials has a line break in it")
	}
	return out, nil
}

// dockerAuth finds the credentials of a registry, as docker login writes them.
func dockerAuth(host string, data []byte) (out authn.AuthConfig, err error) {
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if json.Unmarshal(data, &config) != nil {
		return out, fail(SecretInvalid, "the .dockerconfigjson in the Secret with the credentials is not one")
	}
	for key, auth := range config.Auths {
		key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		key, _, _ = strings.Cut(key, "/")
		if sameRegistry(key, host) {
			return auth, nil
		}
	}
	return out, fail(SecretInvalid, "the .dockerconfigjson in the Secret with the credentials has none for %s", host)
}

// sameRegistry knows the names of Docker's own registry.
func sameRegistry(a, b string) bool {
	hub := func(s string) string {
		switch s {
		case "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com":
			return "docker.io"
		}
		return strings.ToLower(s)
	}
	return hub(a) == hub(b)
}

func certificates(data map[string][]byte) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, crt, key := data["ca.crt"], data["tls.crt"], data["tls.key"]
	if len(ca)+len(crt)+len(key) == 0 {
		return nil, fail(SecretInvalid, "the Secret with the certificates has neither ca.crt nor tls.crt and tls.key")
	}
	if len(ca) > 0 {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(ca) {
			return nil, fail(SecretInvalid, "ca.crt in the Secret with the certificates has no certificate in PEM")
		}
	}
	if len(crt)+len(key) > 0 {
		pair, err := tls.X509KeyPair(crt, key)
		if err != nil {
			// The cause could tell of the key.
			return nil, fail(SecretInvalid, "tls.crt and tls.key in the Secret with the certificates are not a certificate and its key in PEM")
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// scope tells accesses apart without telling what they hold. What the Secrets are
// called is the install's own affair.
func (a *Access) scope(key []byte) string {
	provider, identities := "", []appsv1.OIDCIdentityMatch(nil)
	if v := a.repo.Verify; v != nil {
		provider, identities = v.Provider, v.MatchOIDCIdentity
	}
	raw, _ := json.Marshal(struct { //nolint:errcheck // plain values
		Secrets        Secrets
		Pass, Insecure bool
		Verify         string
		Identities     []appsv1.OIDCIdentityMatch
	}{a.secrets, a.repo.PassCredentials, a.repo.Insecure, provider, identities})
	mac := hmac.New(sha256.New, key)
	mac.Write(raw)
	return hex.EncodeToString(mac.Sum(nil))
}
