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

// alike compares files as what they mean. Formats that keep their text are
// compared by it.
func alike(t *testing.T, f Format, got, want string) {
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
	for f, plain := range plains {
		t.Run(string(f), func(t *testing.T) {
			file := encrypted(t, plain, f, EncryptOptions{}, other.Recipient().String(), id.Recipient().String())
			if !sops.Encrypted(file, f) || sops.Encrypted([]byte(plain), f) {
				t.Error("it is not told that the file is encrypted, or that the plain one is not")
			}
			if bytes.Contains(file, []byte("secret")) || bytes.Contains(file, []byte("about")) {
				t.Errorf("something is plain:\n%s", file)
			}
			alike(t, f, decrypts(t, file, f, ageKeys(t, newAge(t), id), Options{}), plain)
		})
	}
}

func TestHybridAge(t *testing.T) {
	keys := keysOf(t, "pq.agekey", hybridIdentity)
	file := encrypted(t, plainYAML, sops.YAML, EncryptOptions{}, keys.Recipients()...)
	alike(t, sops.YAML, decrypts(t, file, sops.YAML, keys, Options{}), plainYAML)
}

// One set of keys serves reconciles that run beside each other.
func TestConcurrent(t *testing.T) {
	id := newAge(t)
	keys := ageKeys(t, id)
	files := [][]byte{encrypted(t, plainJSON, sops.JSON, EncryptOptions{}, id.Recipient().String()), encrypted(t, plainYAML, sops.YAML, EncryptOptions{}, id.Recipient().String())}
	var wg sync.WaitGroup
	for range 4 {
		for i, file := range files {
			wg.Go(func() {
				if _, err := Decrypt(t.Context(), file, []Format{sops.JSON, sops.YAML}[i], keys, Options{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
}

// Only what the rule names is encrypted, so that a change can be read.
func TestEncryptedRegex(t *testing.T) {
	id := newAge(t)
	const plain = `{"name": "demo", "a": {"private_key": "one", "public": "two"}, "list": [null], "Credentials": [{"token": "three"}]}`
	file := encrypted(t, plain, sops.JSON, EncryptOptions{EncryptedRegex: "^(private_key|Credentials)$"}, id.Recipient().String())
	for word, want := range map[string]bool{`"demo"`: true, `"two"`: true, `"one"`: false, `"three"`: false} {
		if strings.Contains(string(file), word) != want {
			t.Errorf("%s: want %v in\n%s", word, want, file)
		}
	}
	alike(t, sops.JSON, decrypts(t, file, sops.JSON, ageKeys(t, id), Options{}), plain)
	_, err := Encrypt(file, sops.JSON, []string{id.Recipient().String()}, EncryptOptions{})
	refused(t, err, sops.FileInvalid, "already")
	for _, recipient := range []string{"age1nobody", "ssh-ed25519 AAAA", "", id.String()} {
		_, err := Encrypt([]byte(plain), sops.JSON, []string{recipient}, EncryptOptions{})
		refused(t, err, sops.RecipientInvalid, "recipient", id.String())
	}
	_, err = Encrypt([]byte(plain), sops.JSON, nil, EncryptOptions{})
	refused(t, err, sops.RecipientInvalid, "no recipient")
}

// What the rule does not name is encrypted, whatever it is, but for what is empty.
func TestUnencryptedRegex(t *testing.T) {
	id := newAge(t)
	const plain = `{"name": "demo", "a": {"key": "one", "name": ["two"]}, "n": 3, "yes": true, "none": null, "empty": "", "x_unencrypted": "four", "whole": 1e3}`
	file := encrypted(t, plain, sops.JSON, EncryptOptions{UnencryptedRegex: "^(name)$"}, id.Recipient().String())
	for word, want := range map[string]bool{`"demo"`: true, `"two"`: true, `"one"`: false, `"four"`: false, `"none": null`: true, `"empty": ""`: true, `"n": 3`: false, `"yes": true`: false} {
		if strings.Contains(string(file), word) != want {
			t.Errorf("%s: want %v in\n%s", word, want, file)
		}
	}
	alike(t, sops.JSON, decrypts(t, file, sops.JSON, ageKeys(t, id), Options{}), plain)
	for want, o := range map[string]EncryptOptions{
		"two rules":             {EncryptedRegex: "a", UnencryptedRegex: "b"},
		"no regular expression": {UnencryptedRegex: "("},
		"no regular":            {EncryptedRegex: "("},
	} {
		_, err := Encrypt([]byte(plain), sops.JSON, []string{id.Recipient().String()}, o)
		refused(t, err, sops.FileInvalid, want)
	}
}

func TestNothingIsEncryptedThatCannotBeReadAgain(t *testing.T) {
	id := newAge(t)
	plain := []byte(`{"list": [` + strings.Repeat("1, ", 200) + `1]}`)
	_, err := Encrypt(plain, sops.JSON, []string{id.Recipient().String()}, EncryptOptions{Limits: Limits{Bytes: 2000}})
	refused(t, err, sops.FileInvalid, "at most 2000 are read")
	if _, err := Encrypt(plain, sops.JSON, []string{id.Recipient().String()}, EncryptOptions{}); err != nil {
		t.Error(err)
	}
}
