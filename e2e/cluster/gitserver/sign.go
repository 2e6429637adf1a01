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

// Sign makes a signature of what it is given, in armor.
type Sign func(payload []byte) ([]byte, error)

// Sign signs as git does with SSH keys.
func (k *Key) Sign(payload []byte) ([]byte, error) {
	sig, err := sshsig.Sign(bytes.NewReader(payload), k.signer, sshsig.HashSHA512, "git")
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(sig), nil
}

// PGPKey is a key pair of OpenPGP.
type PGPKey struct {
	// Public key, in armor.
	Public string
	entity *openpgp.Entity
	config *packet.Config
}

// NewPGPKey makes a key pair that was made at a time and is valid so long from
// then on; 0: for ever. It signs as of its beginning.
func NewPGPKey(made time.Time, valid time.Duration) (*PGPKey, error) {
	config := &packet.Config{Time: func() time.Time { return made }, KeyLifetimeSecs: uint32(valid / time.Second),
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

// Sign signs as git does with gpg.
func (k *PGPKey) Sign(payload []byte) ([]byte, error) {
	var b bytes.Buffer
	err := openpgp.ArmoredDetachSign(&b, k.entity, bytes.NewReader(payload), k.config)
	return append(b.Bytes(), '\n'), err
}

// Export gives the public key, with the closing line end that a file has.
func (k *PGPKey) Export() []byte { return []byte(k.Public + "\n") }

// SignCommit makes a commit of the same files as another, signed and without a
// parent, and returns its id. Move a branch or a tag to it.
func (r *Repo) SignCommit(ctx context.Context, commit, message string, sign Sign) (string, error) {
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
	return r.Object(ctx, "commit", head+header+body)
}

// SignTag makes an annotated tag with a signature, moves it there if there is
// one of that name, and returns its id.
func (r *Repo) SignTag(ctx context.Context, name, commit string, sign Sign) (string, error) {
	text := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger e2e <e2e@example.com> 0 +0000\n\nrelease\n", commit, name)
	signature, err := sign([]byte(text))
	if err != nil {
		return "", err
	}
	id, err := r.Object(ctx, "tag", text+string(signature))
	if err != nil {
		return "", err
	}
	return id, r.SetTag(ctx, name, id)
}

// Object keeps an object of a kind in the repository, whatever it holds, and
// returns its id.
func (r *Repo) Object(ctx context.Context, kind, content string) (string, error) {
	return r.server.run(ctx, r.dir, io.Reader(strings.NewReader(content)), "hash-object", "-t", kind, "-w", "--stdin", "--literally")
}
