package codec

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"unicode/utf16"

	"filippo.io/age"
	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/ksctl/gitops/stacks/sops"
)

const (
	awsYAML = "aws_access_key_id: AKIDEXAMPLE\naws_secret_access_key: aws-secret-key\n" +
		"aws_session_token: aws-session-secret\n"
	azureYAML = "tenantId: 11111111-2222-3333-4444-555555555555\nclientId: client\nclientSecret: azure-secret\n"
	huaweiYML = "access_key: HUAWEIEXAMPLE\nsecret_key: huawei-secret-key\n" +
		"security_token: huawei-session-secret\nproject_id: 0123456789abcdef0123456789abcdef\n"
	azJSON = `{"appId": "client", "displayName": "x", "password": "azure-secret", "tenant": "11111111-2222-3333-4444-555555555555"}`
)

// gcpJSON returns the JSON key of a service account, with tokens as its token_uri.
func gcpJSON(tb testing.TB, tokens string) string {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com", "private_key_id": "1",
		"token_uri":   tokens,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func TestKeysFromSecret(t *testing.T) {
	id, id2 := newAge(t), newAge(t)
	_, public, private := newPGP(t)
	_, _, private2 := newPGP(t)
	gcp := gcpJSON(t, "")
	wide := func(order func([]byte, uint16) []byte, mark string) string {
		b := []byte(mark)
		for _, u := range utf16.Encode([]rune(azJSON)) {
			b = order(b, u)
		}
		return string(b)
	}
	little := func(b []byte, u uint16) []byte { return append(b, byte(u), byte(u>>8)) }
	big := func(b []byte, u uint16) []byte { return append(b, byte(u>>8), byte(u)) }
	for name, c := range map[string]struct {
		pairs []string
		want  string
	}{
		"nothing": {nil, "keys (age 0, PGP 0, services [])"},
		"unknown keys": {[]string{"a", "\xff", "token", "x", "x.vault-token", "x"},
			"keys (age 0, PGP 0, services [])"},
		"age": {[]string{"a.agekey", "# made by age\r\n" + id.String() + "\r\n\n  " + id2.String()},
			"keys (age 2, PGP 0, services [])"},
		"two keys of age": {[]string{"a.agekey", id.String(), "b.agekey", id2.String()},
			"keys (age 2, PGP 0, services [])"},
		"PGP": {[]string{"a.asc", private}, "keys (age 0, PGP 1, services [])"},
		"several PGP blocks": {[]string{"a.asc", "my key\n" + private + private2},
			"keys (age 0, PGP 2, services [])"},
		"PGP with a public key": {[]string{"a.asc", public + private}, "keys (age 0, PGP 2, services [])"},
		"PGP, binary":           {[]string{"a.asc", binaryOf(t, private)}, "keys (age 0, PGP 1, services [])"},
		"Vault":                 {[]string{VaultToken, " hvs.token\n"}, "keys (age 0, PGP 0, services [Vault])"},
		"AWS":                   {[]string{AWSCredentials, awsYAML}, "keys (age 0, PGP 0, services [AWS])"},
		"Azure":                 {[]string{AzureCredentials, azureYAML}, "keys (age 0, PGP 0, services [Azure])"},
		"Azure, form of az":     {[]string{AzureCredentials, azJSON}, "keys (age 0, PGP 0, services [Azure])"},
		"Azure, with BOM": {[]string{AzureCredentials, "\xef\xbb\xbf" + azJSON},
			"keys (age 0, PGP 0, services [Azure])"},
		"Azure, UTF-16LE": {[]string{AzureCredentials, wide(little, "\xff\xfe")},
			"keys (age 0, PGP 0, services [Azure])"},
		"Azure, UTF-16BE": {[]string{AzureCredentials, wide(big, "\xfe\xff")},
			"keys (age 0, PGP 0, services [Azure])"},
		"GCP":    {[]string{GCPCredentials, gcp + "\n"}, "keys (age 0, PGP 0, services [GCP])"},
		"Huawei": {[]string{HuaweiCredentials, huaweiYML}, "keys (age 0, PGP 0, services [Huawei])"},
		"Huawei, JSON": {[]string{HuaweiCredentials,
			`{"access_key": "a", "secret_key": "b", "project_id": "0e12"}`}, "keys (age 0, PGP 0, services [Huawei])"},
	} {
		t.Run(name, func(t *testing.T) {
			keys := mustKeys(t, c.pairs...)
			if got := describe(keys); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// describe returns the types and numbers of keys.
func describe(k Keys) string {
	m := k.material()
	var kinds []string
	for _, kind := range []struct {
		name  string
		there bool
	}{{"AWS", m.aws != nil}, {"Azure", m.azure != nil}, {"GCP", m.gcp != nil}, {"Huawei", m.huawei != nil},
		{"Vault", m.vault.token != ""}} {
		if kind.there {
			kinds = append(kinds, kind.name)
		}
	}
	return fmt.Sprintf("keys (age %d, PGP %d, services %v)", len(m.age), len(m.pgp), kinds)
}

func binaryOf(t *testing.T, text string) string {
	t.Helper()
	b, err := dearmor(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestKeysFromSecretRefusesMalformedKeys(t *testing.T) {
	id := newAge(t).String()
	entity, _, private := newPGP(t)
	if err := entity.EncryptPrivateKeys([]byte("passphrase-secret"), nil); err != nil {
		t.Fatal(err)
	}
	locked := armored(t, openpgp.PrivateKeyType, func(b *bytes.Buffer) error {
		return entity.SerializePrivateWithoutSigning(b, nil)
	})
	damaged := strings.Replace(private, private[200:210], "!!!!!!!!!!", 1)
	for name, c := range map[string]struct {
		key, value, says string
	}{
		"age, no identity": {"a.agekey", "# nothing\n", "has no age identity"},
		"age, other text":  {"a.agekey", "\nhunter2-secret", "no age identity (AGE-SECRET-KEY-1…) on line 2"},
		"age, damaged":     {"a.agekey", id[:len(id)-4] + "QQQQ", "damaged"},
		"age, truncated":   {"a.agekey", id[:40], "damaged"},
		"age, a recipient": {"a.agekey", "age1hunter2-secret",
			"no age identity (AGE-SECRET-KEY-1…) on line 1"},
		"age, a plugin": {"a.agekey", "AGE-PLUGIN-YUBIKEY-1HUNTER2-secret", "plugin"},
		"age, an SSH key": {"a.agekey", "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2-secret",
			"no age identity (AGE-SECRET-KEY-1…) on line 1"},
		"PGP, no key":           {"a.asc", "hunter2-secret", "no valid PGP key"},
		"PGP, damaged":          {"a.asc", damaged, "PGP key"},
		"PGP, truncated":        {"a.asc", private[:300], "truncated"},
		"PGP, with passphrase":  {"a.asc", locked, "protected by a passphrase: remove the passphrase"},
		"Vault, empty":          {VaultToken, "\n", "not a token"},
		"Vault, two lines":      {VaultToken, "hunter2-secret\nX-Evil: 1", "not a token"},
		"Vault, no address":     {VaultAddresses, " ", "has no address"},
		"Vault, no certificate": {VaultCA, "hunter2-secret", "no PEM certificate"},
		"AWS, not YAML":         {AWSCredentials, "aws_secret_access_key: [hunter2-secret", "is not YAML"},
		"AWS, another type":     {AWSCredentials, "hunter2-secret", "is not YAML"},
		"AWS, no access key ID": {AWSCredentials, "aws_secret_access_key: hunter2-secret",
			"needs aws_access_key_id"},
		"AWS, line break": {AWSCredentials,
			"aws_access_key_id: \"a\\nb\"\naws_secret_access_key: hunter2-secret", "needs aws_access_key_id"},
		"Azure, not YAML":  {AzureCredentials, "clientSecret: [hunter2-secret", "is not YAML"},
		"Azure, no tenant": {AzureCredentials, "clientSecret: hunter2-secret", "needs tenantId"},
		"Azure, a path": {AzureCredentials, "tenantId: ../x\nclientId: a\nclientSecret: hunter2-secret",
			"needs tenantId"},
		"Azure, managed identity": {AzureCredentials, "clientId: hunter2-secret", "managed identity"},
		"Azure, a certificate": {AzureCredentials, "tenantId: x\nclientId: y\nclientCertificate: hunter2-secret",
			"clientCertificate"},
		"Huawei, not YAML": {HuaweiCredentials, "secret_key: [hunter2-secret", "is not YAML or JSON"},
		"Huawei, no access key": {HuaweiCredentials, "secret_key: hunter2-secret\nproject_id: a",
			"needs access_key"},
		"Huawei, no project": {HuaweiCredentials, "access_key: a\nsecret_key: hunter2-secret", "and project_id"},
		"Huawei, a path": {HuaweiCredentials,
			"access_key: a\nsecret_key: hunter2-secret\nproject_id: a/../b", "and project_id"},
		"Huawei, line break": {HuaweiCredentials,
			"access_key: a\nsecret_key: b\nproject_id: c\nsecurity_token: \"hunter2-secret\\nX: y\"",
			"needs access_key"},
		"GCP, not JSON": {GCPCredentials, "{hunter2-secret", "is not the JSON key"},
		"GCP, no key": {GCPCredentials, `{"type": "service_account", "private_key": "hunter2-secret"}`,
			"needs client_email"},
		"GCP, a user": {GCPCredentials, `{"type": "authorized_user", "refresh_token": "hunter2-secret"}`,
			"only service_account is allowed"},
		"GCP, foreign token server": {GCPCredentials,
			`{"type": "service_account", "client_email": "a@b", "token_uri": "https://evil.example.com/"}`,
			"only addresses below googleapis.com"},
		"GCP, a program": {
			GCPCredentials,
			`{"type": "external_account", "credential_source": {"executable": {"command": "/bin/hunter2-secret"}}}`,
			"type external_account",
		},
		"GCP, a file": {GCPCredentials,
			`{"type": "external_account", "credential_source": {"file": "/var/run/secrets/hunter2-secret"}}`,
			"type external_account"},
	} {
		t.Run(name, func(t *testing.T) {
			keys, err := KeysFromSecret(map[string][]byte{c.key: []byte(c.value), "ignored": nil})
			assertError(t, err, sops.KeyInvalid, c.says, "hunter2-secret", "HUNTER2", id, id[20:40], private[100:140],
				"passphrase-secret")
			assertError(t, err, sops.KeyInvalid, "key "+c.key+" of the Secret")
			if keys.m != nil || !toError(err).Terminal() {
				t.Error("got keys or a transient error, want none and a terminal one")
			}
		})
	}
}

// Formatting Keys, or a value that contains them, shows no secret.
func TestFormatKeysShowsNoSecrets(t *testing.T) {
	id := newAge(t)
	_, _, private := newPGP(t)
	pem := gcpJSON(t, "")
	keys := mustKeys(t, "a.agekey", id.String(), "a.asc", private, VaultToken, "hvs.secret", AWSCredentials, awsYAML,
		AzureCredentials, azureYAML, GCPCredentials, pem, HuaweiCredentials, huaweiYML)
	holder := struct {
		Keys   Keys
		hidden Keys
		again  *Keys
	}{keys, keys, &keys}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "keys", keys, "all", holder)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "keys", keys, "all", holder)
	for _, v := range []any{keys, &keys, holder, &holder, []Keys{keys}, map[string]Keys{"a": keys}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&log, verb, v) //nolint:govet // the loop tests all verbs
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		log.Write(b)
	}
	for _, s := range []string{id.String()[20:40], private[100:140], "hvs.secret", "aws-secret-key",
		"aws-session-secret", "azure-secret", pem[60:100], "huawei-secret-key", "huawei-session-secret"} {
		for _, form := range []string{s, fmt.Sprintf("%x", s), fmt.Sprintf("%d", []byte(s)),
			base64.StdEncoding.EncodeToString([]byte(s))} {
			if strings.Contains(log.String(), form) {
				t.Errorf("the output contains %s", form)
			}
		}
	}
	if !strings.Contains(log.String(), "decryption keys") {
		t.Error("the output does not contain the text of Format")
	}
}

// hybridIdentity is an age identity with a post-quantum key.
var hybridIdentity = func() string {
	id, err := age.GenerateHybridIdentity()
	if err != nil {
		panic(err)
	}
	return id.String()
}()
