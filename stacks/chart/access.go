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

// Secrets are the data of the Secrets that an entry of spec.charts references.
type Secrets struct {
	// Credentials has username and password, bearerToken, or .dockerconfigjson.
	Credentials map[string][]byte
	// Certificates has ca.crt, tls.crt and tls.key.
	Certificates map[string][]byte
	// Keys has what verifies signatures: public keys, or a trusted root.
	Keys map[string][]byte
}

// Access has the credentials, TLS settings and verification keys for one repository. The zero value
// has no credentials.
type Access struct {
	repo    appsv1.ChartRepository
	secrets Secrets

	auth authn.AuthConfig
	tls  *tls.Config
	// keyring verifies .prov files, verifier verifies manifests in a registry. At most one of the
	// two is set.
	keyring  openpgp.EntityList
	verifier verify.Verifier
}

// FindRepository returns the entry of spec.charts for a repository address, or nil. An exact match
// wins. Otherwise a trailing slash is ignored, because Chart.yaml and spec.charts may differ in it.
func FindRepository(charts []appsv1.ChartRepository, repository string) (match *appsv1.ChartRepository) {
	for i := range charts {
		switch address := charts[i].Repository; {
		case address == repository:
			return &charts[i]
		case strings.TrimSuffix(address, "/") == strings.TrimSuffix(repository, "/"):
			match = &charts[i]
		}
	}
	return match
}

// SecretNames returns the names of the Secrets that ReadSecrets reads for a repository.
func SecretNames(repo *appsv1.ChartRepository) (names []string) {
	_, _ = ReadSecrets(repo, func(name string) (map[string][]byte, error) {
		names = append(names, name)
		return nil, nil
	})
	return names
}

// ReadSecrets reads the Secrets that an entry of spec.charts references. An error is that of read,
// or an *Error.
func ReadSecrets(repo *appsv1.ChartRepository,
	read func(name string) (map[string][]byte, error)) (out Secrets, err error) {
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
		secretRef := v.SecretRef
		if keyless(v) {
			secretRef = v.TrustedRootSecretRef
		}
		if secretRef == nil {
			return Secrets{},
				terminalError(RepositoryInvalid,
					"spec.charts: %s: verify names no Secret: set verify.secretRef, or verify.trustedRootSecretRef "+
						"for keyless cosign", repo.Repository)
		}
		if out.Keys, err = read(secretRef.Name); err != nil {
			return Secrets{}, err
		}
	}
	return out, nil
}

// NewAccess returns the Access for an entry of spec.charts and the data of its Secrets. The error
// is an *Error, and contains no value of a Secret.
func NewAccess(repo *appsv1.ChartRepository, secrets Secrets) (*Access, error) {
	a := &Access{repo: *repo, secrets: secrets}
	u, err := url.Parse(repo.Repository)
	if err != nil {
		return nil, terminalError(RepositoryInvalid, "the address of the repository is not a valid URL")
	}
	if repo.Insecure && u.Scheme != "oci" {
		return nil, terminalError(RepositoryInvalid,
			"spec.charts: %s: insecure is only allowed for oci:// repositories", repo.Repository)
	}
	if repo.SecretRef != nil {
		if a.auth, err = readCredentials(u, secrets.Credentials); err != nil {
			return nil, err
		}
	}
	if repo.CertSecretRef != nil {
		if a.tls, err = readCertificates(secrets.Certificates); err != nil {
			return nil, err
		}
	}
	if repo.Verify == nil {
		return a, nil
	}
	if err := a.loadVerifier(u.Scheme); err != nil {
		return nil, err
	}
	return a, nil
}

func readCredentials(u *url.URL, data map[string][]byte) (out authn.AuthConfig, err error) {
	if docker, ok := data[".dockerconfigjson"]; ok {
		if u.Scheme != "oci" {
			return out, terminalError(SecretInvalid,
				"the credentials Secret has .dockerconfigjson, which is only allowed for oci:// repositories; set "+
					"username and password, or bearerToken")
		}
		return dockerConfigAuth(u.Host, docker)
	}
	out.Username, out.Password = string(data["username"]), string(data["password"])
	out.RegistryToken = strings.TrimSpace(string(data["bearerToken"]))
	switch {
	case out.RegistryToken != "" && out.Username+out.Password != "":
		return out, terminalError(SecretInvalid,
			"the credentials Secret has both bearerToken and username or password; set only one of the two")
	case out.RegistryToken == "" && (out.Username == "" || out.Password == ""):
		return out, terminalError(SecretInvalid,
			"the credentials Secret has neither username and password nor bearerToken nor .dockerconfigjson")
	case strings.ContainsAny(out.RegistryToken, "\r\n\x00"):
		return out, terminalError(SecretInvalid, "bearerToken in the credentials Secret contains a line break")
	}
	return out, nil
}

// dockerConfigAuth returns the credentials for a registry from the JSON that "docker login" writes.
func dockerConfigAuth(host string, data []byte) (out authn.AuthConfig, err error) {
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if json.Unmarshal(data, &config) != nil {
		return out, terminalError(SecretInvalid,
			"the .dockerconfigjson in the credentials Secret is not a valid Docker configuration")
	}
	for key, auth := range config.Auths {
		key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		key, _, _ = strings.Cut(key, "/")
		if sameRegistry(key, host) {
			return auth, nil
		}
	}
	return out, terminalError(SecretInvalid,
		"the .dockerconfigjson in the credentials Secret has no credentials for %s", host)
}

// sameRegistry compares registry hosts. The several names of Docker Hub are equal.
func sameRegistry(a, b string) bool {
	canonical := func(s string) string {
		switch s {
		case "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com":
			return "docker.io"
		}
		return strings.ToLower(s)
	}
	return canonical(a) == canonical(b)
}

func readCertificates(data map[string][]byte) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, crt, key := data["ca.crt"], data["tls.crt"], data["tls.key"]
	if len(ca)+len(crt)+len(key) == 0 {
		return nil, terminalError(SecretInvalid, "the certificate Secret has neither ca.crt nor tls.crt and tls.key")
	}
	if len(ca) > 0 {
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(ca) {
			return nil, terminalError(SecretInvalid, "ca.crt in the certificate Secret contains no PEM certificate")
		}
	}
	if len(crt)+len(key) > 0 {
		pair, err := tls.X509KeyPair(crt, key)
		if err != nil {
			// The cause is omitted: it could quote the private key.
			return nil, terminalError(SecretInvalid,
				"tls.crt and tls.key in the certificate Secret are not a PEM certificate and its private key")
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// fingerprint is an HMAC over the contents of the Secrets and the verification settings: equal for
// equal access, and it reveals none of them. The names of the Secrets do not count, so that
// installs with the same credentials share the cache. The Go names of the fields are part of the
// hashed JSON: renaming one invalidates every cache.
func (a *Access) fingerprint(key []byte) string {
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
