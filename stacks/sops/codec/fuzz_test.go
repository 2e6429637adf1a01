package codec

import (
	"bytes"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/ksctl/gitops/stacks/sops"
)

// maxFuzzBytes keeps the cost of an input low.
const maxFuzzBytes = 64 << 10

var fuzzFormats = []Format{sops.YAML, sops.JSON, sops.Dotenv, sops.INI, sops.Binary}

// FuzzDecrypt checks that any file is decrypted, or refused with an *Error and no output, and that
// the error contains no part of the keys.
func FuzzDecrypt(f *testing.F) {
	id := newAge(f)
	recipient := id.Recipient().String()
	keys := mustKeys(f, "a.agekey", id.String(), VaultToken, "hvs.token-secret", AWSCredentials, awsYAML,
		AzureCredentials, azureYAML, HuaweiCredentials, huaweiYML)
	for i, format := range fuzzFormats {
		file := mustEncrypt(f, plainFiles[format], format, sops.EncryptRequest{}, recipient)
		f.Add(file, byte(i))
		f.Add(bytes.Replace(file, []byte("mac"), []byte("x"), 1), byte(i))
		f.Add([]byte(plainFiles[format]), byte(i))
	}
	f.Add([]byte("a: &a [*a]\nsops: *a\n"), byte(0))
	f.Add([]byte("sops:\n  lastmodified: 2026-11-01T12:00:00Z\n  hc_vault: [{vault_address: "+
		"'https://169.254.169.254', engine_path: a, key_name: b, enc: c}]\n"), byte(0))
	f.Add([]byte("sops:\n  lastmodified: 2026-11-01T12:00:00Z\n  hckms: [{key_id: "+
		"'tr-west-1:00000000-0000-0000-0000-000000000000', enc: c}]\n"), byte(0))
	f.Add([]byte("sops:\n  lastmodified: 2026-11-01T12:00:00Z\n  shamir_threshold: 2\n  key_groups: [{pgp: [{fp: a, "+
		"enc: b}]}, {age: [{recipient: a, enc: b}]}]\n"), byte(0))
	f.Fuzz(func(t *testing.T, file []byte, format byte) {
		if len(file) > maxFuzzBytes {
			t.Skip()
		}
		fmt := fuzzFormats[int(format)%len(fuzzFormats)]
		out, err := decrypt(t.Context(), file, fmt, keys, withoutNetwork())
		if err == nil {
			return
		}
		// nolint:errorlint // the error itself must have this type, not its chain
		if _, ok := err.(*Error); !ok || out != nil {
			t.Fatalf("%T %v, %d bytes", err, err, len(out))
		}
		assertNoSecrets(t, err, id.String(), "hvs.token-secret", "aws-secret-key", "azure-secret", "huawei-secret-key",
			"huawei-session-secret")
		sops.IsEncrypted(file, fmt)
	})
}

// FuzzEncrypt checks that any file is encrypted or refused, and that a binary file decrypts to
// itself.
func FuzzEncrypt(f *testing.F) {
	id := newAge(f)
	keys := ageKeys(f, id)
	for i, format := range fuzzFormats {
		f.Add([]byte(plainFiles[format]), byte(i), "")
		f.Add([]byte(plainFiles[format]), byte(i), "o")
	}
	f.Fuzz(func(t *testing.T, plain []byte, format byte, pattern string) {
		if len(plain) > maxFuzzBytes {
			t.Skip()
		}
		fmt := fuzzFormats[int(format)%len(fuzzFormats)]
		file, err := encryptFile(plain, fmt, []string{id.Recipient().String()},
			sops.EncryptRequest{EncryptedRegex: pattern})
		if err != nil {
			if file != nil {
				t.Fatalf("got an error and a file: %v", err)
			}
			return
		}
		out, err := decrypt(t.Context(), file, fmt, keys, defaultOptions())
		if err != nil && fmt == sops.Binary { // for other formats, the library is known to lose data
			t.Fatalf("%v\n%s", err, file)
		}
		if fmt == sops.Binary && !bytes.Equal(out, plain) {
			t.Fatalf("got %q", out)
		}
	})
}

// FuzzKeys checks that any Secret is read, or refused with an error that contains no part of it.
func FuzzKeys(f *testing.F) {
	_, _, private := newPGP(f)
	for name, value := range map[string]string{
		"a.agekey": newAge(f).String(), "a.asc": private, VaultToken: "hvs.token", AWSCredentials: awsYAML,
		AzureCredentials: azJSON,
		GCPCredentials:   `{"type": "external_account"}`, VaultAddresses: "https://a",
		VaultCA: "-----BEGIN CERTIFICATE-----\n", HuaweiCredentials: huaweiYML, "other": "x",
	} {
		f.Add(name, []byte(value))
		f.Add(name, []byte(strings.ToLower(value)))
	}
	f.Fuzz(func(t *testing.T, name string, value []byte) {
		keys, err := KeysFromSecret(map[string][]byte{name: value})
		if err == nil {
			for _, r := range keys.Recipients() {
				if _, err := age.ParseRecipients(strings.NewReader(r)); err != nil {
					t.Fatal(err)
				}
			}
			return
		}
		// nolint:errorlint // the error itself must have this type, not its chain
		if e, ok := err.(*Error); !ok || e.Reason != sops.KeyInvalid {
			t.Fatalf("%T %v", err, err)
		}
		// Short values may occur in a message by chance, longer ones hardly.
		if s := string(value); len(s) >= 24 && !strings.Contains(name, s) && strings.Contains(err.Error(), s) {
			t.Fatalf("the error %v contains %q", err, s)
		}
	})
}
