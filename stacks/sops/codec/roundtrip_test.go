package codec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks/sops"
)

// assertEquivalent compares files. JSON and YAML are compared by value, other formats by text.
func assertEquivalent(t *testing.T, f Format, got, want string) {
	t.Helper()
	var a, b any
	switch f {
	case sops.JSON:
		if err := json.Unmarshal([]byte(got), &a); err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal([]byte(want), &b)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	case sops.YAML:
		if err := yaml.Unmarshal([]byte(got), &a); err != nil {
			t.Fatal(err)
		}
		_ = yaml.Unmarshal([]byte(want), &b)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	default:
		if got != want {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	id, other := newAge(t), newAge(t)
	for f, plain := range plainFiles {
		t.Run(string(f), func(t *testing.T) {
			file := mustEncrypt(t, plain, f, sops.EncryptRequest{}, other.Recipient().String(), id.Recipient().String())
			if !sops.IsEncrypted(file, f) || sops.IsEncrypted([]byte(plain), f) {
				t.Error("want the encrypted file to be detected, and not the plain one")
			}
			if bytes.Contains(file, []byte("secret")) || bytes.Contains(file, []byte("about")) {
				t.Errorf("a value is not encrypted:\n%s", file)
			}
			assertEquivalent(t, f, mustDecrypt(t, file, f, ageKeys(t, newAge(t), id), defaultOptions()), plain)
		})
	}
}

func TestRoundTripWithHybridAgeKey(t *testing.T) {
	keys := mustKeys(t, "pq.agekey", hybridIdentity)
	file := mustEncrypt(t, plainYAML, sops.YAML, sops.EncryptRequest{}, keys.Recipients()...)
	assertEquivalent(t, sops.YAML, mustDecrypt(t, file, sops.YAML, keys, defaultOptions()), plainYAML)
}

// Concurrent reconciles share one Keys value.
func TestDecryptConcurrently(t *testing.T) {
	id := newAge(t)
	keys := ageKeys(t, id)
	files := [][]byte{mustEncrypt(t, plainJSON, sops.JSON, sops.EncryptRequest{}, id.Recipient().String()),
		mustEncrypt(t, plainYAML, sops.YAML, sops.EncryptRequest{}, id.Recipient().String())}
	var wg sync.WaitGroup
	for range 4 {
		for i, file := range files {
			wg.Go(func() {
				if _, err := decrypt(t.Context(), file, []Format{sops.JSON, sops.YAML}[i], keys,
					defaultOptions()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

// Only values with a matching name are encrypted, so that changes can be reviewed.
func TestEncryptOnlyMatchesOfEncryptedRegex(t *testing.T) {
	id := newAge(t)
	const plain = `{"name": "demo", "a": {"private_key": "one", "public": "two"}, "list": [null], "Credentials": [{"token": "three"}]}`
	file := mustEncrypt(t, plain, sops.JSON, sops.EncryptRequest{EncryptedRegex: "^(private_key|Credentials)$"},
		id.Recipient().String())
	for quoted, want := range map[string]bool{`"demo"`: true, `"two"`: true, `"one"`: false, `"three"`: false} {
		if strings.Contains(string(file), quoted) != want {
			t.Errorf("%s: want %v in\n%s", quoted, want, file)
		}
	}
	assertEquivalent(t, sops.JSON, mustDecrypt(t, file, sops.JSON, ageKeys(t, id), defaultOptions()), plain)
	_, err := encryptFile(file, sops.JSON, []string{id.Recipient().String()}, sops.EncryptRequest{})
	assertError(t, err, sops.FileInvalid, "is encrypted already")
	for _, recipient := range []string{"age1nobody", "ssh-ed25519 AAAA", "", id.String()} {
		_, err := encryptFile([]byte(plain), sops.JSON, []string{recipient}, sops.EncryptRequest{})
		assertError(t, err, sops.RecipientInvalid, "recipient", id.String())
	}
	_, err = encryptFile([]byte(plain), sops.JSON, nil, sops.EncryptRequest{})
	assertError(t, err, sops.RecipientInvalid, "no recipients")
}

// All values without a matching name are encrypted, of any type, except empty ones.
func TestEncryptAllButMatchesOfUnencryptedRegex(t *testing.T) {
	id := newAge(t)
	const plain = `{"name": "demo", "a": {"key": "one", "name": ["two"]}, "n": 3, "yes": true, "none": null, "empty": "", "x_unencrypted": "four", "whole": 1e3}`
	file := mustEncrypt(t, plain, sops.JSON, sops.EncryptRequest{UnencryptedRegex: "^(name)$"}, id.Recipient().String())
	for quoted, want := range map[string]bool{`"demo"`: true, `"two"`: true, `"one"`: false, `"four"`: false,
		`"none": null`: true, `"empty": ""`: true, `"n": 3`: false, `"yes": true`: false} {
		if strings.Contains(string(file), quoted) != want {
			t.Errorf("%s: want %v in\n%s", quoted, want, file)
		}
	}
	assertEquivalent(t, sops.JSON, mustDecrypt(t, file, sops.JSON, ageKeys(t, id), defaultOptions()), plain)
	for want, o := range map[string]sops.EncryptRequest{
		"one of the two":                 {EncryptedRegex: "a", UnencryptedRegex: "b"},
		"not a valid regular expression": {UnencryptedRegex: "("},
		"valid regular expression":       {EncryptedRegex: "("},
	} {
		_, err := encryptFile([]byte(plain), sops.JSON, []string{id.Recipient().String()}, o)
		assertError(t, err, sops.FileInvalid, want)
	}
}

func TestEncryptRefusesResultAboveSizeLimit(t *testing.T) {
	id := newAge(t)
	plain := []byte(`{"text": "` + strings.Repeat("x", maxBytes*4/5) + `"}`) // in base64, it is larger by a third
	_, err := encryptFile(plain, sops.JSON, []string{id.Recipient().String()}, sops.EncryptRequest{})
	assertError(t, err, sops.FileInvalid, "at most 5242880 are allowed: split the file")
}
