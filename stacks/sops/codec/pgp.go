package codec

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/ksctl/gitops/stacks/sops"
)

const (
	pgpMessage = "PGP MESSAGE"
	pgpBegin   = "-----BEGIN PGP "
	pgpEnd     = "-----END PGP "
)

// decryptPGP decrypts a message that is encrypted for any of the keys.
func decryptPGP(keys openpgp.EntityList, message []byte) ([]byte, error) {
	block, err := armor.Decode(bytes.NewReader(message))
	if err != nil || block.Type != pgpMessage {
		return nil, invalid("the data key is not an armored PGP message")
	}
	maxBytes := int64(maxPartBytes) + 1
	md, err := openpgp.ReadMessage(block.Body, keys, nil, &packet.Config{MaxDecompressedMessageSize: &maxBytes})
	if err != nil || !md.IsEncrypted || md.DecryptedWith.PrivateKey == nil {
		return nil, errMissing
	}
	// The integrity of the message is checked at its end, so read all of it.
	part, err := io.ReadAll(io.LimitReader(md.UnverifiedBody, maxBytes))
	if err != nil {
		return nil, newError(sops.IntegrityFailed, "the data key is damaged")
	}
	return part, nil
}

// readPGPKeys reads private keys from armored blocks, or from binary data. Public keys are allowed
// and have no effect, as in gpg. Errors of the library are dropped, because they may quote the
// input.
func readPGPKeys(value []byte) (openpgp.EntityList, error) {
	rings := [][]byte{value}
	if rest := string(value); strings.Contains(rest, pgpBegin) {
		rings = nil
		for i := strings.Index(rest, pgpBegin); i >= 0; i = strings.Index(rest, pgpBegin) {
			rest = rest[i:]
			end := strings.Index(rest, pgpEnd)
			if end < 0 {
				return nil, invalid("has a truncated PGP key")
			}
			line, _, _ := strings.Cut(rest[end:], "\n")
			ring, err := dearmor(rest[:end] + line + "\n")
			if err != nil {
				return nil, err
			}
			rings, rest = append(rings, ring), rest[end+len(line):]
		}
	}
	var all openpgp.EntityList
	for _, ring := range rings {
		found, err := openpgp.ReadKeyRing(bytes.NewReader(ring))
		if err != nil {
			return nil, invalid("has no valid PGP key: export it with gpg --export-secret-keys --armor")
		}
		for _, e := range found {
			if needsPassphrase(e) {
				return nil, invalid("has PGP key %s, which is protected by a passphrase: remove the passphrase (gpg "+
					"--edit-key, passwd) and export the key again", fingerprint(e))
			}
		}
		all = append(all, found...)
	}
	return all, nil
}

func dearmor(text string) ([]byte, error) {
	block, err := armor.Decode(strings.NewReader(text))
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(block.Body)
	}
	if err != nil {
		return nil, invalid("has a damaged PGP key: copy the key again")
	}
	return raw, nil
}

// needsPassphrase is true if a private key needs a passphrase. A primary key that is only a stub
// does not count, because only keys that decrypt matter.
func needsPassphrase(e *openpgp.Entity) bool {
	for _, sub := range e.Subkeys {
		if sub.PrivateKey != nil && sub.PrivateKey.Encrypted && !sub.PrivateKey.Dummy() {
			return true
		}
	}
	p := e.PrivateKey
	return p != nil && p.Encrypted && !p.Dummy()
}

func fingerprint(e *openpgp.Entity) string {
	return strings.ToUpper(hex.EncodeToString(e.PrimaryKey.Fingerprint))
}
