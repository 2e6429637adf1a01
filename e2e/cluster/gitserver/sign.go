package gitserver

import (
	"bytes"
	"context"
	"crypto"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
)

// SignFunc returns the armored signature of a payload.
type SignFunc func(payload []byte) ([]byte, error)

// Sign signs a payload as git does with SSH keys.
func (k *Key) Sign(payload []byte) ([]byte, error) {
	sig, err := sshsig.Sign(bytes.NewReader(payload), k.signer, sshsig.HashSHA512, "git")
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(sig), nil
}

// PGPKey is an OpenPGP key pair.
type PGPKey struct {
	// Public is the armored public key.
	Public string
	entity *openpgp.Entity
	config *packet.Config
}

// NewPGPKey creates a key pair with a creation time and a lifetime from then on; a lifetime of 0
// means no expiry. Signatures have the creation time of the key.
func NewPGPKey(created time.Time, lifetime time.Duration) (*PGPKey, error) {
	config := &packet.Config{Time: func() time.Time { return created }, KeyLifetimeSecs: uint32(lifetime / time.Second),
		Algorithm: packet.PubKeyAlgoEdDSA, DefaultHash: crypto.SHA256}
	entity, err := openpgp.NewEntity("e2e", "", "e2e@example.com", config)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err != nil {
		return nil, err
	}
	if err := entity.Serialize(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return &PGPKey{entity: entity, config: config, Public: b.String()}, nil
}

// Sign signs a payload as git does with gpg.
func (k *PGPKey) Sign(payload []byte) ([]byte, error) {
	var b bytes.Buffer
	err := openpgp.ArmoredDetachSign(&b, k.entity, bytes.NewReader(payload), k.config)
	return append(b.Bytes(), '\n'), err
}

// Export returns the armored public key with a final newline, as in a file.
func (k *PGPKey) Export() []byte { return []byte(k.Public + "\n") }

// SignCommit creates a signed commit without a parent that has the files of another commit, and
// returns the commit id. The caller moves a branch or a tag to it.
func (r *Repo) SignCommit(ctx context.Context, commit, message string, sign SignFunc) (string, error) {
	tree, err := r.server.run(ctx, r.dir, nil, "rev-parse", commit+"^{tree}")
	if err != nil {
		return "", err
	}
	head := "tree " + tree + "\nauthor e2e <e2e@example.com> 0 +0000\ncommitter e2e <e2e@example.com> 0 +0000\n"
	body := "\n" + message + "\n"
	signature, err := sign([]byte(head + body))
	if err != nil {
		return "", err
	}
	header := ""
	if len(signature) > 0 {
		header = "gpgsig " + strings.ReplaceAll(strings.TrimSuffix(string(signature), "\n"), "\n", "\n ") + "\n"
	}
	return r.WriteObject(ctx, "commit", head+header+body)
}

// SignTag creates a signed annotated tag, or replaces an existing tag, and returns the id of the
// tag object.
func (r *Repo) SignTag(ctx context.Context, name, commit string, sign SignFunc) (string, error) {
	text := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger e2e <e2e@example.com> 0 +0000\n\nrelease\n", commit,
		name)
	signature, err := sign([]byte(text))
	if err != nil {
		return "", err
	}
	id, err := r.WriteObject(ctx, "tag", text+string(signature))
	if err != nil {
		return "", err
	}
	return id, r.SetTag(ctx, name, id)
}

// WriteObject writes a Git object of a type (kind) and returns its id. The content is not
// validated.
func (r *Repo) WriteObject(ctx context.Context, kind, content string) (string, error) {
	return r.server.run(ctx, r.dir, io.Reader(strings.NewReader(content)), "hash-object", "-t", kind, "-w", "--stdin",
		"--literally")
}
