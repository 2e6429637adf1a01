// Package sops defines the contract for decrypting and encrypting files with SOPS
// (https://getsops.io), and detects encrypted files. It has no implementation, because the SDKs of
// all clouds that one needs are large: a program may use another process instead. Package
// stacks/sops/codec is the implementation in this process.
package sops

import (
	"context"
	"strings"
)

// Request is the request to decrypt a file. It is serializable, so that another process can do it.
type Request struct {
	// Name is the name of the file; for errors only.
	Name   string `json:"name,omitempty"`
	Data   []byte `json:"data"`
	Format Format `json:"format"`
	// Secret has the keys, under the names that Flux uses: age identities in *.agekey, OpenPGP
	// private keys in *.asc, credentials in sops.aws-kms, sops.azure-kv, sops.gcp-kms and
	// sops.vault-token. sops.hckms is an addition of this project. Other entries are ignored.
	Secret map[string][]byte `json:"secret"`
}

// IsKey is true for the name of a Secret entry that a Decrypter may use.
func IsKey(entry string) bool {
	return strings.HasSuffix(entry, ".agekey") || strings.HasSuffix(entry, ".asc") || strings.HasPrefix(entry, "sops.")
}

// Decrypter decrypts a file. An error about the file or the keys is an *Error.
type Decrypter func(ctx context.Context, r Request) ([]byte, error)

// EncryptRequest is the request to encrypt a file for age recipients. It is serializable, too.
type EncryptRequest struct {
	// Name is the name of the file; for errors only.
	Name   string `json:"name,omitempty"`
	Data   []byte `json:"data"`
	Format Format `json:"format"`
	// Recipients are age public keys.
	Recipients []string `json:"recipients"`
	// EncryptedRegex matches the names of the values to encrypt, with everything below them. If it
	// is empty, everything is encrypted except what UnencryptedRegex matches.
	EncryptedRegex string `json:"encryptedRegex,omitempty"`
	// UnencryptedRegex matches the names of the values that stay plain, with everything below them.
	// It excludes EncryptedRegex.
	UnencryptedRegex string `json:"unencryptedRegex,omitempty"`
}

// Encrypter encrypts a file. An error about the file or the recipients is an *Error.
type Encrypter func(ctx context.Context, r EncryptRequest) ([]byte, error)
