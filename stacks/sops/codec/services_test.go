package codec

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/azkv"
	"github.com/getsops/sops/v3/gcpkms"
	"github.com/getsops/sops/v3/hcvault"
	"github.com/getsops/sops/v3/keys"
	"github.com/getsops/sops/v3/kms"
	"github.com/getsops/sops/v3/pgp"

	"github.com/ksctl/gitops/stacks/sops"
)

// service is a test server for all key services, with a certificate for all their host names.
type service struct {
	*httptest.Server
	roots    *x509.CertPool
	pem      string
	requests atomic.Int32
}

func newService(t *testing.T, handle http.HandlerFunc) *service {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"vault.example.com", "kms.eu-west-1.amazonaws.com", "demo.vault.azure.net",
			"login.microsoftonline.com",
			"kms.tr-west-1.myhuaweicloud.com", "kms.eu-west-101.myhuaweicloud.eu", "cloudkms.googleapis.com",
			"oauth2.googleapis.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{roots: x509.NewCertPool(),
		pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	s.roots.AppendCertsFromPEM([]byte(s.pem))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		handle(w, r)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// options returns options that connect to the test server for any host name.
func (s *service) options() options {
	o := defaultOptions()
	o.roots = s.roots
	o.dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
	}
	return o
}

// encryptedWith returns a file with the master key that by returns for its data key.
func encryptedWith(t *testing.T, by func(key []byte) keys.MasterKey) []byte {
	t.Helper()
	store := storeOf(sops.YAML)
	branches, err := store.LoadPlainFile([]byte("a: value-secret\n"))
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	tree := library.Tree{Branches: branches, Metadata: library.Metadata{KeyGroups: []library.KeyGroup{{by(key)}},
		Version: "3.9.0", LastModified: time.Now().UTC(),
		UnencryptedSuffix: library.DefaultUnencryptedSuffix}}
	mac, err := tree.Encrypt(key, aes.NewCipher())
	if err != nil {
		t.Fatal(err)
	}
	if tree.Metadata.MessageAuthenticationCode, err = aes.NewCipher().
		Encrypt(mac, key, tree.Metadata.LastModified.Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	file, err := store.EmitEncryptedFile(tree)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func base64Of(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

func TestDecryptWithVault(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Ciphertext string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		wrapped, ok := strings.CutPrefix(in.Ciphertext, "vault:v1:")
		if r.URL.Path != "/v1/ns/transit/decrypt/demo" || r.Header.Get("X-Vault-Token") != "hvs.token-secret" || !ok {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]string{"plaintext": wrapped}})
	})
	to := func(address string) []byte {
		return encryptedWith(t, func(key []byte) keys.MasterKey {
			return &hcvault.MasterKey{VaultAddress: address, EnginePath: "ns/transit", KeyName: "demo",
				EncryptedKey: "vault:v1:" + base64Of(key)}
		})
	}
	file, token := to("https://vault.example.com:8200"), mustKeys(t, VaultToken, "hvs.token-secret")
	if got := mustDecrypt(t, file, sops.YAML, token, s.options()); got != "a: value-secret\n" {
		t.Errorf("got %q", got)
	}
	o := s.options()
	o.roots = nil
	_, err := decrypt(t.Context(), file, sops.YAML, token, o)
	assertError(t, err, sops.ServiceFailed, "can't be reached", "hvs.token-secret")
	mustDecrypt(t, file, sops.YAML,
		mustKeys(t, VaultToken, "hvs.token-secret", VaultCA, s.pem, VaultAddresses,
			"https://vault.example.com:8200/\n"), o)
	_, err = decrypt(t.Context(), file, sops.YAML, mustKeys(t, VaultToken, "another-token-secret"), s.options())
	assertError(t, err, sops.ServiceFailed, "403 Forbidden", "another-token-secret")
	before := s.requests.Load()
	_, err = decrypt(t.Context(), file, sops.YAML,
		mustKeys(t, VaultToken, "hvs.token-secret", VaultAddresses, "https://vault.example.org"), s.options())
	assertError(t, err, sops.AddressRefused, "does not list the address", "hvs.token-secret")
	_, err = decrypt(t.Context(), file, sops.YAML, Keys{}, s.options())
	assertError(t, err, sops.KeyMissing, "no credentials for this key service (key sops.vault-token)")
	for address, says := range map[string]string{
		"http://vault.example.com":         "does not start with https://",
		"https://169.254.169.254":          "link-local",
		"https://[fd00:ec2::254]":          "credentials of a machine",
		"https://127.0.0.1:8200":           "this machine",
		"https://LocalHost.":               "this machine",
		"https://user@vault.example.com":   "more than a host",
		"https://vault.example.com/?a=b#c": "more than a host",
	} {
		_, err := decrypt(t.Context(), to(address), sops.YAML, token, defaultOptions())
		t.Log(address)
		assertError(t, err, sops.AddressRefused, says, "hvs.token-secret")
	}
	for _, path := range []string{"../../sys/seal", "a/../b", "", "/x", "a b"} {
		hostile := encryptedWith(t, func([]byte) keys.MasterKey {
			return &hcvault.MasterKey{VaultAddress: "https://vault.example.com:8200", EnginePath: "ns/transit",
				KeyName: path, EncryptedKey: "x"}
		})
		_, err := decrypt(t.Context(), hostile, sops.YAML, token, s.options())
		t.Log(path)
		assertError(t, err, sops.AddressRefused, "not a valid path of a key", "hvs.token-secret")
	}
	if s.requests.Load() != before {
		t.Error("a request was sent")
	}
}

// A redirect is not followed, and no other host receives the token.
func TestVaultRedirectIsNotFollowed(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://kms.eu-west-1.amazonaws.com/v1/x", http.StatusTemporaryRedirect)
	})
	file := encryptedWith(t, func([]byte) keys.MasterKey {
		return &hcvault.MasterKey{VaultAddress: "https://vault.example.com", EnginePath: "transit", KeyName: "demo",
			EncryptedKey: "x"}
	})
	_, err := decrypt(t.Context(), file, sops.YAML, mustKeys(t, VaultToken, "hvs.token-secret"), s.options())
	e := toError(err)
	if e.Reason != sops.AddressRefused && e.Reason != sops.ServiceFailed || s.requests.Load() != 1 {
		t.Errorf("got %v and %d requests", err, s.requests.Load())
	}
}

func TestDecryptWithAWS(t *testing.T) {
	t.Setenv("AWS_CA_BUNDLE", "") // the library's configuration reads it
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			CiphertextBlob    string
			EncryptionContext map[string]string
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if r.Host != "kms.eu-west-1.amazonaws.com" || r.Header.Get("X-Amz-Security-Token") != "aws-session-secret" ||
			in.EncryptionContext["team"] != "a" ||
			!strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"Plaintext": in.CiphertextBlob})
	})
	team := "a"
	to := func(arn, role string) []byte {
		return encryptedWith(t, func(key []byte) keys.MasterKey {
			return &kms.MasterKey{Arn: arn, Role: role, EncryptionContext: map[string]*string{"team": &team},
				AwsProfile: "prod", EncryptedKey: base64Of(key)}
		})
	}
	const arn = "arn:aws:kms:eu-west-1:123456789012:key/1234-abcd"
	credentials := mustKeys(t, AWSCredentials, awsYAML)
	mustDecrypt(t, to(arn, ""), sops.YAML, credentials, s.options())
	before := s.requests.Load()
	_, err := decrypt(t.Context(), to(arn, "arn:aws:iam::123456789012:role/admin"), sops.YAML, credentials, s.options())
	assertError(t, err, sops.AddressRefused, "requests the role", "aws-secret-key", "aws-session-secret")
	for _, hostile := range []string{"arn:aws:kms:evil.example.com/#:123456789012:key/x",
		"arn:aws:s3:eu-west-1:123456789012:key/x", "arn:aws:kms:eu-west-1.evil:123456789012:key/x"} {
		_, err := decrypt(t.Context(), to(hostile, ""), sops.YAML, credentials, s.options())
		assertError(t, err, sops.AddressRefused, "not that of a key", "aws-secret-key")
	}
	_, err = decrypt(t.Context(), to(arn, ""), sops.YAML, Keys{}, s.options())
	assertError(t, err, sops.KeyMissing, "no credentials for this key service (key sops.aws-kms)")
	if s.requests.Load() != before {
		t.Error("a request was sent")
	}
}

// The test server is both the vault and its token service.
func TestDecryptWithAzure(t *testing.T) {
	const tenant, login = "11111111-2222-3333-4444-555555555555", "https://login.microsoftonline.com/"
	reply := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/discovery/instance"):
			reply(w, map[string]string{"tenant_discovery_endpoint": login + tenant +
				"/v2.0/.well-known/openid-configuration"})
		case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
			reply(w, map[string]string{"token_endpoint": login + tenant + "/oauth2/v2.0/token",
				"authorization_endpoint": login + tenant + "/oauth2/v2.0/authorize", "issuer": login + tenant +
					"/v2.0"})
		case strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token"):
			if r.FormValue("client_id") != "client" || r.FormValue("client_secret") != "azure-secret" ||
				r.Host != "login.microsoftonline.com" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			reply(w, map[string]any{"access_token": "azure-token-secret", "token_type": "Bearer", "expires_in": 3600})
		case r.Header.Get("Authorization") != "Bearer azure-token-secret":
			w.Header().Set("WWW-Authenticate", `Bearer authorization="`+login+tenant+
				`", resource="https://vault.azure.net"`)
			w.WriteHeader(http.StatusUnauthorized)
		case r.Host == "demo.vault.azure.net" && r.URL.Path == "/keys/sops/1/decrypt":
			var in struct{ Alg, Value string }
			_ = json.NewDecoder(r.Body).Decode(&in)
			reply(w, map[string]string{"kid": "https://demo.vault.azure.net/keys/sops/1", "value": in.Value})
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	})
	to := func(version string) []byte {
		return encryptedWith(t, func(key []byte) keys.MasterKey {
			return &azkv.MasterKey{VaultURL: "https://demo.vault.azure.net", Name: "sops", Version: version,
				EncryptedKey: base64.RawURLEncoding.EncodeToString(key)}
		})
	}
	if got := mustDecrypt(t, to("1"), sops.YAML, mustKeys(t, AzureCredentials, azureYAML),
		s.options()); got != "a: value-secret\n" {
		t.Errorf("got %q", got)
	}
	_, err := decrypt(t.Context(), to("2"), sops.YAML, mustKeys(t, AzureCredentials, azureYAML), s.options())
	assertError(t, err, sops.ServiceFailed, "403 Forbidden", "azure-secret", "azure-token-secret")
}

func TestDecryptRefusesForeignAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		key  keys.MasterKey
		keys Keys
		want sops.Reason
	}{
		"Azure, foreign address": {&azkv.MasterKey{VaultURL: "https://vault.example.com", Name: "x",
			EncryptedKey: "eA"}, mustKeys(t, AzureCredentials, azureYAML), sops.AddressRefused},
		"Azure, no credentials": {&azkv.MasterKey{VaultURL: "https://demo.vault.azure.net", Name: "x",
			EncryptedKey: "eA"}, Keys{}, sops.KeyMissing},
		"GCP, invalid resource": {&gcpkms.MasterKey{ResourceID: "projects/../x", EncryptedKey: "eA=="},
			mustKeys(t, GCPCredentials, gcpJSON(t, "")), sops.AddressRefused},
		"GCP, no credentials": {&gcpkms.MasterKey{ResourceID: "projects/p/locations/global/keyRings/r/cryptoKeys/k",
			EncryptedKey: "eA=="}, Keys{}, sops.KeyMissing},
	} {
		t.Log(name)
		_, err := decrypt(t.Context(), encryptedWith(t, func([]byte) keys.MasterKey {
			return c.key
		}), sops.YAML, c.keys, withoutNetwork())
		assertError(t, err, c.want, "", "azure-secret")
	}
}

func TestDecryptWithPGP(t *testing.T) {
	entity, _, private := newPGP(t)
	_, _, other := newPGP(t)
	file := encryptedWith(t, func(key []byte) keys.MasterKey {
		return &pgp.MasterKey{Fingerprint: fingerprint(entity), EncryptedKey: encryptPGP(t, entity, key)}
	})
	if got := mustDecrypt(t, file, sops.YAML, mustKeys(t, "k.asc", private),
		defaultOptions()); got != "a: value-secret\n" {
		t.Errorf("got %q", got)
	}
	_, err := decrypt(t.Context(), file, sops.YAML, mustKeys(t, "k.asc", other), defaultOptions())
	assertError(t, err, sops.KeyMissing, "encrypted for the PGP keys "+fingerprint(entity)+
		", and the Secret has the keys ")
	_, err = decrypt(t.Context(), file, sops.YAML, Keys{}, defaultOptions())
	assertError(t, err, sops.KeyMissing, "the Secret has no PGP key (key *.asc)")
}
