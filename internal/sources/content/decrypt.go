package content

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/sops"
)

// NewKeysNotFoundError returns the error for a Secret of spec.decryption that does not exist.
func NewKeysNotFoundError(namespace, name string) error {
	return reconcile.NewTransientError(appsv1.SecretNotFoundReason,
		"Secret %s/%s does not exist: create it or correct spec.decryption.secretRef", namespace, name)
}

// Keys are the decryption keys for the files of a stack; nil means that nothing is decrypted.
type Keys struct {
	// data is a func so that printing a struct that contains Keys shows an address, not the keys.
	data        func() map[string][]byte
	fingerprint string
}

// NewKeys returns the decryption keys in a Secret. key is the HMAC key of their fingerprint.
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

// Fingerprint returns a value that differs between different keys and reveals nothing about them.
// It is empty for nil.
func (k *Keys) Fingerprint() string {
	if k == nil {
		return ""
	}
	return k.fingerprint
}

// errNoDecrypter is the error of a program that has no decrypter.
var errNoDecrypter = &sops.Error{Reason: sops.Unavailable,
	Message: "the file is encrypted with SOPS, but this program has no decrypter"}

// opener returns a function that decrypts with keys; nil if keys is nil.
func (l *Loader) opener(keys *Keys) stacks.Decrypter {
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

// explainMissingKeys replaces a *stacks.EncryptedError with an error that names spec.decryption.
func explainMissingKeys(err error) error {
	encrypted, ok := errors.AsType[*stacks.EncryptedError](err)
	if !ok {
		return err
	}
	return &sops.Error{Reason: sops.KeyMissing, Message: encrypted.Subject() +
		" encrypted with SOPS, but spec.decryption names no keys"}
}
