// Package sops says how files are decrypted that are encrypted with SOPS
// (https://getsops.io), and how they are made, and tells them from others. It does neither itself: the
// libraries of all clouds that this takes are large, so that a program may have it done by
// another one. stacks/sops/codec does it in this process.
package sops

import (
	"context"
	"strings"
)

// Request is one file to decrypt. It can be serialised, so that another process can do it.
type Request struct {
	// Name of the file, for errors alone.
	Name   string `json:"name,omitempty"`
	Data   []byte `json:"data"`
	Format Format `json:"format"`
	// Secret has the keys, in the vocabulary of Flux: private keys of age in *.agekey, of
	// OpenPGP in *.asc, credentials in sops.aws-kms, sops.azure-kv, sops.gcp-kms and
	// sops.vault-token, and of our own sops.hckms. Other entries mean nothing.
	Secret map[string][]byte `json:"secret"`
}

// IsKey is true for an entry of a Secret that means something to who decrypts.
func IsKey(entry string) bool {
	return strings.HasSuffix(entry, ".agekey") || strings.HasSuffix(entry, ".asc") || strings.HasPrefix(entry, "sops.")
}

// Decrypter decrypts a file. Errors that say something of the file or of the keys
// are *Error.
type Decrypter func(ctx context.Context, r Request) ([]byte, error)

// EncryptRequest is one file to encrypt to age recipients. It can be serialised, likewise.
type EncryptRequest struct {
	// Name of the file, for errors alone.
	Name   string `json:"name,omitempty"`
	Data   []byte `json:"data"`
	Format Format `json:"format"`
	// Recipients are public keys of age.
	Recipients []string `json:"recipients"`
	// EncryptedRegex fits the names of what is encrypted, and all below them; everything
	// when it is empty, but what UnencryptedRegex fits.
	EncryptedRegex string `json:"encryptedRegex,omitempty"`
	// UnencryptedRegex fits the names of what stays plain, and all below them; it goes without
	// the other.
	UnencryptedRegex string `json:"unencryptedRegex,omitempty"`
}

// Encrypter encrypts a file. Errors that say something of the file or of the recipients
// are *Error.
type Encrypter func(ctx context.Context, r EncryptRequest) ([]byte, error)
