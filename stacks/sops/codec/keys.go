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

// Keys of a Secret that KeysFromSecret reads, in Flux's vocabulary and with the
// same content, so that one Secret serves both. Of the last three Flux knows
// nothing.
const (
	// AgeSuffix ends keys that hold age identities, one a line.
	AgeSuffix = ".agekey"
	// PGPSuffix ends keys that hold private PGP keys, armored or not.
	PGPSuffix = ".asc"
	// VaultToken holds a token of HashiCorp Vault or OpenBao.
	VaultToken = "sops.vault-token"
	// AWSCredentials holds aws_access_key_id, aws_secret_access_key and
	// aws_session_token, as YAML.
	AWSCredentials = "sops.aws-kms"
	// AzureCredentials holds tenantId, clientId and clientSecret, or tenant, appId
	// and password as az writes them, as YAML or JSON.
	AzureCredentials = "sops.azure-kv"
	// GCPCredentials holds the JSON key of a service account.
	GCPCredentials = "sops.gcp-kms"
	// VaultAddresses names the Vaults that may be sent the token, one URL a line.
	// Without it a file may name any: who commits files can then have the token
	// sent to a server of theirs.
	VaultAddresses = "sops.vault-address"
	// VaultCA holds the certificates (PEM) that Vault's own is trusted by, instead
	// of the system's.
	VaultCA = "sops.vault-ca.crt"
	// HuaweiCredentials holds access_key, secret_key, project_id and, for temporary
	// ones, security_token of Huawei Cloud, as YAML or JSON.
	HuaweiCredentials = "sops.hckms"
)

// Keys are what may decrypt. They show nothing of themselves when printed. The
// zero value holds none.
type Keys struct {
	// A func: what prints a struct around this one shows an address, and no verb
	// makes it follow that, as it would a pointer.
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

// KeysFromSecret reads the data of a Secret. Other keys than those of Flux'
// vocabulary are ignored, as Flux does. One that can't be read is an error that
// names it.
func KeysFromSecret(data map[string][]byte) (keys Keys, err error) {
	defer recovered(&err)
	m := new(material)
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if err := m.read(name, data[name]); err != nil {
			e := *ours(err)
			e.Reason, e.Message = sops.KeyInvalid, fmt.Sprintf("the key %s of the Secret %s", shown(name), e.Message)
			return Keys{}, &e
		}
	}
	return Keys{m: func() *material { return m }}, nil
}

func (m *material) read(name string, value []byte) (err error) {
	switch name {
	case VaultToken:
		m.vault.token = strings.TrimSpace(string(value))
		if m.vault.token == "" || !printable(m.vault.token) {
			return invalid("is not a token")
		}
		return nil
	case VaultAddresses:
		m.vault.addresses = strings.Fields(string(value))
		if len(m.vault.addresses) == 0 {
			return invalid("names no address")
		}
		return nil
	case VaultCA:
		m.vault.roots = x509.NewCertPool()
		if !m.vault.roots.AppendCertsFromPEM(value) {
			return invalid("holds no certificate (PEM)")
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
		ids, err := readAge(value)
		m.age = append(m.age, ids...)
		return err
	case PGPSuffix:
		ring, err := readPGP(value)
		m.pgp = append(m.pgp, ring...)
		return err
	}
	return nil
}

// material of the keys, of the zero value too.
func (k Keys) material() *material {
	if k.m == nil {
		return new(material)
	}
	return k.m()
}

// Empty tells that there is no key at all.
func (k Keys) Empty() bool {
	m := k.material()
	return len(m.age)+len(m.pgp) == 0 && m.aws == nil && m.azure == nil && m.gcp == nil && m.huawei == nil && m.vault.token == ""
}

// Recipients are the public halves of the age identities, which files can be
// encrypted to.
func (k Keys) Recipients() []string {
	var all []string
	for _, id := range k.material().age {
		switch id := id.(type) {
		case *age.X25519Identity:
			all = append(all, id.Recipient().String())
		case *age.HybridIdentity:
			all = append(all, id.Recipient().String())
		}
	}
	return all
}

// String says which kinds of keys there are, and how many.
func (k Keys) String() string {
	m := k.material()
	var kinds []string
	for _, kind := range []struct {
		name  string
		there bool
	}{{"AWS", m.aws != nil}, {"Azure", m.azure != nil}, {"GCP", m.gcp != nil}, {"Huawei", m.huawei != nil}, {"Vault", m.vault.token != ""}} {
		if kind.there {
			kinds = append(kinds, kind.name)
		}
	}
	return fmt.Sprintf("keys (age %d, PGP %d, services %v)", len(m.age), len(m.pgp), kinds)
}

// Format writes what String says, whatever the verb.
func (k Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText gives what String says, to JSON and to loggers.
func (k Keys) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// printable tells whether a value can stand in a header.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}
