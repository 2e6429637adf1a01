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

// service is a server of keys, under the names of several.
type service struct {
	*httptest.Server
	roots *x509.CertPool
	pem   string
	asked atomic.Int32
}

func newService(t *testing.T, handle http.HandlerFunc) *service {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		DNSNames: []string{"vault.example.com", "kms.eu-west-1.amazonaws.com", "demo.vault.azure.net", "login.microsoftonline.com",
			"kms.tr-west-1.myhuaweicloud.com", "kms.eu-west-101.myhuaweicloud.eu", "cloudkms.googleapis.com", "oauth2.googleapis.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{roots: x509.NewCertPool(), pem: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))}
	s.roots.AppendCertsFromPEM([]byte(s.pem))
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		handle(w, r)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// options that lead every name to the service.
func (s *service) options() Options {
	return Options{RootCAs: s.roots, dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
	}}
}

// sealedTo is a file whose data key was encrypted by somebody who says how.
func sealedTo(t *testing.T, by func(key []byte) keys.MasterKey) []byte {
	t.Helper()
	store := storeOf(sops.YAML)
	branches, err := store.LoadPlainFile([]byte("a: value-secret\n"))
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	tree := library.Tree{Branches: branches, Metadata: library.Metadata{KeyGroups: []library.KeyGroup{{by(key)}}, Version: "3.9.0", LastModified: time.Now().UTC(),
		UnencryptedSuffix: library.DefaultUnencryptedSuffix}}
	mac, err := tree.Encrypt(key, aes.NewCipher())
	if err != nil {
		t.Fatal(err)
	}
	if tree.Metadata.MessageAuthenticationCode, err = aes.NewCipher().Encrypt(mac, key, tree.Metadata.LastModified.Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	file, err := store.EmitEncryptedFile(tree)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func inBase64(key []byte) string { return base64.StdEncoding.EncodeToString(key) }

func TestVault(t *testing.T) {
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
		return sealedTo(t, func(key []byte) keys.MasterKey {
			return &hcvault.MasterKey{VaultAddress: address, EnginePath: "ns/transit", KeyName: "demo", EncryptedKey: "vault:v1:" + inBase64(key)}
		})
	}
	file, token := to("https://vault.example.com:8200"), keysOf(t, VaultToken, "hvs.token-secret")
	if got := decrypts(t, file, sops.YAML, token, s.options()); got != "a: value-secret\n" {
		t.Errorf("got %q", got)
	}
	o := s.options()
	o.RootCAs = nil
	_, err := Decrypt(t.Context(), file, sops.YAML, token, o)
	refused(t, err, sops.ServiceFailed, "can't be reached", "hvs.token-secret")
	decrypts(t, file, sops.YAML, keysOf(t, VaultToken, "hvs.token-secret", VaultCA, s.pem, VaultAddresses, "https://vault.example.com:8200/\n"), o)
	_, err = Decrypt(t.Context(), file, sops.YAML, keysOf(t, VaultToken, "another-token-secret"), s.options())
	refused(t, err, sops.ServiceFailed, "403 Forbidden", "another-token-secret")
	before := s.asked.Load()
	_, err = Decrypt(t.Context(), file, sops.YAML, keysOf(t, VaultToken, "hvs.token-secret", VaultAddresses, "https://vault.example.org"), s.options())
	refused(t, err, sops.AddressRefused, "does not name its address", "hvs.token-secret")
	_, err = Decrypt(t.Context(), file, sops.YAML, Keys{}, s.options())
	refused(t, err, sops.KeyMissing, "no credentials for it (key sops.vault-token)")
	for address, says := range map[string]string{
		"http://vault.example.com":         "does not begin with https://",
		"https://169.254.169.254":          "link-local",
		"https://[fd00:ec2::254]":          "credentials of a machine",
		"https://127.0.0.1:8200":           "this machine",
		"https://LocalHost.":               "this machine",
		"https://user@vault.example.com":   "more than a host",
		"https://vault.example.com/?a=b#c": "more than a host",
	} {
		_, err := Decrypt(t.Context(), to(address), sops.YAML, token, Options{RootCAs: s.roots})
		t.Log(address)
		refused(t, err, sops.AddressRefused, says, "hvs.token-secret")
	}
	for _, path := range []string{"../../sys/seal", "a/../b", "", "/x", "a b"} {
		hostile := sealedTo(t, func([]byte) keys.MasterKey {
			return &hcvault.MasterKey{VaultAddress: "https://vault.example.com:8200", EnginePath: "ns/transit", KeyName: path, EncryptedKey: "x"}
		})
		_, err := Decrypt(t.Context(), hostile, sops.YAML, token, s.options())
		t.Log(path)
		refused(t, err, sops.AddressRefused, "no path of a key", "hvs.token-secret")
	}
	if s.asked.Load() != before {
		t.Error("somebody was asked all the same")
	}
	decrypts(t, to(s.URL), sops.YAML, token, Options{RootCAs: s.roots, AllowLoopback: true})
}

// A server that leads elsewhere gets no second request, and nobody else the token.
func TestVaultThatLeadsElsewhere(t *testing.T) {
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://kms.eu-west-1.amazonaws.com/v1/x", http.StatusTemporaryRedirect)
	})
	file := sealedTo(t, func([]byte) keys.MasterKey {
		return &hcvault.MasterKey{VaultAddress: "https://vault.example.com", EnginePath: "transit", KeyName: "demo", EncryptedKey: "x"}
	})
	_, err := Decrypt(t.Context(), file, sops.YAML, keysOf(t, VaultToken, "hvs.token-secret"), s.options())
	e := ours(err)
	if e.Reason != sops.AddressRefused && e.Reason != sops.ServiceFailed || s.asked.Load() != 1 {
		t.Errorf("got %v after %d requests", err, s.asked.Load())
	}
}

func TestAWS(t *testing.T) {
	t.Setenv("AWS_CA_BUNDLE", "") // the library's configuration reads it
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			CiphertextBlob    string
			EncryptionContext map[string]string
		}
		_ = json.NewDecoder(r.Body).Decode(&in)
		if r.Host != "kms.eu-west-1.amazonaws.com" || r.Header.Get("X-Amz-Security-Token") != "aws-session-secret" || in.EncryptionContext["team"] != "a" ||
			!strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"Plaintext": in.CiphertextBlob})
	})
	team := "a"
	to := func(arn, role string) []byte {
		return sealedTo(t, func(key []byte) keys.MasterKey {
			return &kms.MasterKey{Arn: arn, Role: role, EncryptionContext: map[string]*string{"team": &team}, AwsProfile: "prod", EncryptedKey: inBase64(key)}
		})
	}
	const arn = "arn:aws:kms:eu-west-1:123456789012:key/1234-abcd"
	credentials := keysOf(t, AWSCredentials, awsYAML)
	decrypts(t, to(arn, ""), sops.YAML, credentials, s.options())
	before := s.asked.Load()
	_, err := Decrypt(t.Context(), to(arn, "arn:aws:iam::123456789012:role/admin"), sops.YAML, credentials, s.options())
	refused(t, err, sops.AddressRefused, "asks to assume the role", "aws-secret-key", "aws-session-secret")
	for _, hostile := range []string{"arn:aws:kms:evil.example.com/#:123456789012:key/x", "arn:aws:s3:eu-west-1:123456789012:key/x", "arn:aws:kms:eu-west-1.evil:123456789012:key/x"} {
		_, err := Decrypt(t.Context(), to(hostile, ""), sops.YAML, credentials, s.options())
		refused(t, err, sops.AddressRefused, "no ARN of a key", "aws-secret-key")
	}
	_, err = Decrypt(t.Context(), to(arn, ""), sops.YAML, Keys{}, s.options())
	refused(t, err, sops.KeyMissing, "no credentials for it (key sops.aws-kms)")
	if s.asked.Load() != before {
		t.Error("somebody was asked all the same")
	}
}

// The service is both the vault and where tokens for it come from.
func TestAzure(t *testing.T) {
	const tenant, login = "11111111-2222-3333-4444-555555555555", "https://login.microsoftonline.com/"
	reply := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	s := newService(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/discovery/instance"):
			reply(w, map[string]string{"tenant_discovery_endpoint": login + tenant + "/v2.0/.well-known/openid-configuration"})
		case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
			reply(w, map[string]string{"token_endpoint": login + tenant + "/oauth2/v2.0/token", "authorization_endpoint": login + tenant + "/oauth2/v2.0/authorize", "issuer": login + tenant + "/v2.0"})
		case strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token"):
			if r.FormValue("client_id") != "client" || r.FormValue("client_secret") != "azure-secret" || r.Host != "login.microsoftonline.com" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			reply(w, map[string]any{"access_token": "azure-token-secret", "token_type": "Bearer", "expires_in": 3600})
		case r.Header.Get("Authorization") != "Bearer azure-token-secret":
			w.Header().Set("WWW-Authenticate", `Bearer authorization="`+login+tenant+`", resource="https://vault.azure.net"`)
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
		return sealedTo(t, func(key []byte) keys.MasterKey {
			return &azkv.MasterKey{VaultURL: "https://demo.vault.azure.net", Name: "sops", Version: version, EncryptedKey: base64.RawURLEncoding.EncodeToString(key)}
		})
	}
	if got := decrypts(t, to("1"), sops.YAML, keysOf(t, AzureCredentials, azureYAML), s.options()); got != "a: value-secret\n" {
		t.Errorf("got %q", got)
	}
	_, err := Decrypt(t.Context(), to("2"), sops.YAML, keysOf(t, AzureCredentials, azureYAML), s.options())
	refused(t, err, sops.ServiceFailed, "403 Forbidden", "azure-secret", "azure-token-secret")
}

func TestAddressesOfOtherClouds(t *testing.T) {
	for name, c := range map[string]struct {
		key  keys.MasterKey
		keys Keys
		want sops.Reason
	}{
		"Azure elsewhere":           {&azkv.MasterKey{VaultURL: "https://vault.example.com", Name: "x", EncryptedKey: "eA"}, keysOf(t, AzureCredentials, azureYAML), sops.AddressRefused},
		"Azure without credentials": {&azkv.MasterKey{VaultURL: "https://demo.vault.azure.net", Name: "x", EncryptedKey: "eA"}, Keys{}, sops.KeyMissing},
		"GCP elsewhere":             {&gcpkms.MasterKey{ResourceID: "projects/../x", EncryptedKey: "eA=="}, keysOf(t, GCPCredentials, gcpJSON(t, "")), sops.AddressRefused},
		"GCP without credentials":   {&gcpkms.MasterKey{ResourceID: "projects/p/locations/global/keyRings/r/cryptoKeys/k", EncryptedKey: "eA=="}, Keys{}, sops.KeyMissing},
	} {
		t.Log(name)
		_, err := Decrypt(t.Context(), sealedTo(t, func([]byte) keys.MasterKey { return c.key }), sops.YAML, c.keys, Options{dial: noNetwork})
		refused(t, err, c.want, "", "azure-secret")
	}
}

func TestPGP(t *testing.T) {
	entity, _, private := newPGP(t)
	_, _, other := newPGP(t)
	file := sealedTo(t, func(key []byte) keys.MasterKey {
		return &pgp.MasterKey{Fingerprint: fingerprint(entity), EncryptedKey: sealedPGP(t, entity, key)}
	})
	if got := decrypts(t, file, sops.YAML, keysOf(t, "k.asc", private), Options{}); got != "a: value-secret\n" {
		t.Errorf("got %q", got)
	}
	_, err := Decrypt(t.Context(), file, sops.YAML, keysOf(t, "k.asc", other), Options{})
	refused(t, err, sops.KeyMissing, "encrypted to the PGP keys "+fingerprint(entity)+", and the keys that are given are ")
	_, err = Decrypt(t.Context(), file, sops.YAML, Keys{}, Options{})
	refused(t, err, sops.KeyMissing, "no PGP key is given (a key *.asc of the Secret)")
}
