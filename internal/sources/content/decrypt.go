package content

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
)

// KeysNotFoundReason says that the Secret of spec.decryption does not exist.
const KeysNotFoundReason = "SecretNotFound"

// KeysNotFoundError says that the Secret of spec.decryption does not exist.
type KeysNotFoundError struct{ Namespace, Name string }

func (e *KeysNotFoundError) Error() string {
	return fmt.Sprintf("there is no Secret %s/%s: make it, or correct spec.decryption.secretRef", e.Namespace, e.Name)
}

// Keys decrypt what a stack is rendered from; nil: nothing is decrypted.
type Keys struct {
	// A func: what prints a struct around this one shows an address.
	data        func() map[string][]byte
	fingerprint string
}

// NewKeys are those of a Secret. key keys what tells them from others.
func NewKeys(secret map[string][]byte, key []byte) (*Keys, error) {
	data := map[string][]byte{}
	for name, value := range secret {
		if sops.IsKey(name) {
			data[name] = value
		}
	}
	raw, err := json.Marshal(data)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(raw)
	return &Keys{data: func() map[string][]byte { return data }, fingerprint: hex.EncodeToString(mac.Sum(nil))}, nil
}

// Fingerprint tells keys from others, and nothing of them; empty: there are none.
func (k *Keys) Fingerprint() string {
	if k == nil {
		return ""
	}
	return k.fingerprint
}

// errNoDecrypter is for a program that brings nothing that decrypts.
var errNoDecrypter = &sops.Error{Reason: sops.Unavailable, Message: "it is encrypted with SOPS, and this program decrypts nothing"}

// opener decrypts with keys; nil without.
func (l *Loader) opener(keys *Keys) stacks.Opener {
	if keys == nil {
		return nil
	}
	return func(ctx context.Context, name string, f sops.Format, data []byte) ([]byte, error) {
		if l.Decrypt == nil {
			return nil, errNoDecrypter
		}
		return l.Decrypt(ctx, sops.Request{Name: name, Data: data, Format: f, Secret: keys.data()})
	}
}

// keyless says what to do about files that are encrypted where there are no keys.
func keyless(err error) error {
	met, ok := errors.AsType[*stacks.EncryptedError](err)
	if !ok {
		return err
	}
	return &sops.Error{Reason: sops.KeyMissing, Message: met.Named() + " encrypted with SOPS, and spec.decryption names no keys"}
}
