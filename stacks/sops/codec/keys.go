package codec

import (
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/ksctl/gitops/stacks/sops"
)

// Keys of a Secret that KeysFromSecret reads. Names and values are those of Flux, so that one
// Secret works for both. Flux does not have the last three.
const (
	// AgeSuffix is the suffix of keys with age identities, one per line.
	AgeSuffix = ".agekey"
	// PGPSuffix is the suffix of keys with private PGP keys, armored or binary.
	PGPSuffix = ".asc"
	// VaultToken has a token of HashiCorp Vault or OpenBao.
	VaultToken = "sops.vault-token"
	// AWSCredentials has aws_access_key_id, aws_secret_access_key and
	// aws_session_token, as YAML.
	AWSCredentials = "sops.aws-kms"
	// AzureCredentials has tenantId, clientId and clientSecret, or tenant, appId and password as az
	// writes them, as YAML or JSON.
	AzureCredentials = "sops.azure-kv"
	// GCPCredentials has the JSON key of a service account.
	GCPCredentials = "sops.gcp-kms"
	// VaultAddresses has the URLs of the Vaults that may receive the token, one per line. Without
	// it, a file may name any Vault, so that an author of files can have the token sent to their
	// own server.
	VaultAddresses = "sops.vault-address"
	// VaultCA has the CA certificates (PEM) for the certificate of the Vault, instead of those of
	// the system.
	VaultCA = "sops.vault-ca.crt"
	// HuaweiCredentials has access_key, secret_key, project_id and, for temporary credentials,
	// security_token of Huawei Cloud, as YAML or JSON.
	HuaweiCredentials = "sops.hckms"
)

// Keys are the keys and credentials for decryption. Formatting Keys shows none of them. The zero
// value has no keys.
type Keys struct {
	// m is a function, because formatting a struct that contains Keys then shows an address only.
	// With a pointer, some verbs would show the value.
	m func() *material
}

type material struct {
	age   []age.Identity
	pgp   openpgp.EntityList
	aws   *awsCredentials
	azure *azureCredentials
	gcp   []byte
	vault vaultCredentials

	huawei *huaweiCredentials
}

type vaultCredentials struct {
	token     string
	addresses []string
	roots     *x509.CertPool
}

// KeysFromSecret reads the data of a Secret. It ignores unknown keys, as Flux does. The error for a
// malformed value has the name of the key.
func KeysFromSecret(data map[string][]byte) (keys Keys, err error) {
	defer recoverPanic(&err)
	m := new(material)
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if err := m.read(name, data[name]); err != nil {
			e := *toError(err)
			e.Reason, e.Message = sops.KeyInvalid, fmt.Sprintf("key %s of the Secret %s", sanitize(name), e.Message)
			return Keys{}, &e
		}
	}
	return Keys{m: func() *material { return m }}, nil
}

func (m *material) read(name string, value []byte) (err error) {
	switch name {
	case VaultToken:
		m.vault.token = strings.TrimSpace(string(value))
		if m.vault.token == "" || !isHeaderValue(m.vault.token) {
			return invalid("is not a token")
		}
		return nil
	case VaultAddresses:
		m.vault.addresses = strings.Fields(string(value))
		if len(m.vault.addresses) == 0 {
			return invalid("has no address")
		}
		return nil
	case VaultCA:
		m.vault.roots = x509.NewCertPool()
		if !m.vault.roots.AppendCertsFromPEM(value) {
			return invalid("has no PEM certificate")
		}
		return nil
	case AWSCredentials:
		m.aws, err = readAWS(value)
		return err
	case AzureCredentials:
		m.azure, err = readAzure(value)
		return err
	case GCPCredentials:
		m.gcp, err = readGCP(value)
		return err
	case HuaweiCredentials:
		m.huawei, err = readHuawei(value)
		return err
	}
	switch path.Ext(name) {
	case AgeSuffix:
		ids, err := readAgeIdentities(value)
		m.age = append(m.age, ids...)
		return err
	case PGPSuffix:
		ring, err := readPGPKeys(value)
		m.pgp = append(m.pgp, ring...)
		return err
	}
	return nil
}

// material returns the keys. It is not nil, also for the zero value.
func (k Keys) material() *material {
	if k.m == nil {
		return new(material)
	}
	return k.m()
}

// Recipients returns the public keys of the age identities. Files can be encrypted for them.
func (k Keys) Recipients() []string {
	var recipients []string
	for _, id := range k.material().age {
		switch id := id.(type) {
		case *age.X25519Identity:
			recipients = append(recipients, id.Recipient().String())
		case *age.HybridIdentity:
			recipients = append(recipients, id.Recipient().String())
		}
	}
	return recipients
}

// Format implements fmt.Formatter. It writes the same for any verb.
func (Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "decryption keys") }

// isHeaderValue is true if a value can be part of an HTTP header.
func isHeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
