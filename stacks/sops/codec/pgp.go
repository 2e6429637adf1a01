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

// openPGP decrypts what was encrypted for one of the keys.
func openPGP(keys openpgp.EntityList, message []byte) ([]byte, error) {
	block, err := armor.Decode(bytes.NewReader(message))
	if err != nil || block.Type != pgpMessage {
		return nil, invalid("the data key is not an armored PGP message")
	}
	most := int64(partBytes) + 1
	md, err := openpgp.ReadMessage(block.Body, keys, nil, &packet.Config{MaxDecompressedMessageSize: &most})
	if err != nil || !md.IsEncrypted || md.DecryptedWith.PrivateKey == nil {
		return nil, errMissing
	}
	// Read to its end, where the integrity of the message is checked.
	part, err := io.ReadAll(io.LimitReader(md.UnverifiedBody, most))
	if err != nil {
		return nil, fail(sops.IntegrityFailed, "the data key is damaged")
	}
	return part, nil
}

// readPGP reads private keys, of one or several armored blocks, or unarmored.
// Public ones are ignored, as gpg would take them. The library's errors may quote
// what they read.
func readPGP(value []byte) (openpgp.EntityList, error) {
	rings := [][]byte{value}
	if rest := string(value); strings.Contains(rest, pgpBegin) {
		rings = nil
		for i := strings.Index(rest, pgpBegin); i >= 0; i = strings.Index(rest, pgpBegin) {
			rest = rest[i:]
			end := strings.Index(rest, pgpEnd)
			if end < 0 {
				return nil, invalid("holds a PGP key that is cut off")
			}
			line, _, _ := strings.Cut(rest[end:], "\n")
			ring, err := unarmored(rest[:end] + line + "\n")
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
			return nil, invalid("holds no PGP key that can be read: export it with gpg --export-secret-keys --armor")
		}
		for _, e := range found {
			if locked(e) {
				return nil, invalid("holds the PGP key %s, which is protected by a passphrase: take that off (gpg --edit-key, passwd) and export it again", fingerprint(e))
			}
		}
		all = append(all, found...)
	}
	return all, nil
}

func unarmored(text string) ([]byte, error) {
	block, err := armor.Decode(strings.NewReader(text))
	if err != nil {
		return nil, invalid("holds a PGP key that is damaged: copy it again")
	}
	raw, err := io.ReadAll(block.Body)
	if err != nil {
		return nil, invalid("holds a PGP key that is damaged: copy it again")
	}
	return raw, nil
}

// locked tells whether a private key needs a passphrase. The primary one may be
// kept elsewhere; only those that decrypt matter.
func locked(e *openpgp.Entity) bool {
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
