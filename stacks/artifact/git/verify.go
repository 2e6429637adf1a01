package git

import (
	"bytes"
	"errors"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// sshNamespace is what SSH signatures of Git are made for.
const sshNamespace = "git"

// VerifyCommit checks that one of the keys signed the commit. The error is an
// *Error. A key that has expired by now verifies nothing, whenever it signed:
// the time in a commit is what its author wrote.
func (c *Checkout) VerifyCommit(keys *Keys, now time.Time) error {
	raw, err := c.raw(plumbing.NewHash(c.Commit), plumbing.CommitObject)
	if err != nil {
		return err
	}
	return about(guard(func() error {
		s, err := splitCommit(raw)
		if err != nil {
			return err
		}
		return keys.verify(s, now)
	}), "commit "+c.Commit)
}

// VerifyTag checks that the tag that the checkout was fetched by is annotated,
// was signed by one of the keys, and means this commit under this name: a
// server could show a signed tag under the name of another.
func (c *Checkout) VerifyTag(keys *Keys, now time.Time) error {
	what := "tag " + quoted(c.tag.Name)
	if c.tag.Object == "" {
		return fail(SignatureMissing, "%s is not annotated, so that it can't be signed: make it with git tag --sign", what)
	}
	raw, err := c.raw(plumbing.NewHash(c.tag.Object), plumbing.TagObject)
	if err != nil {
		return err
	}
	return about(guard(func() error {
		head, err := readTagHead(raw)
		if err != nil {
			return failBy(SignatureInvalid, err, "it can't be read")
		}
		if head.kind != plumbing.CommitObject.String() || head.object != c.Commit {
			return fail(SignatureInvalid, "it is of the %.20s %.64s, not of commit %s itself", head.kind, head.object, c.Commit)
		}
		if head.name != c.tag.Name {
			return fail(SignatureInvalid, "it was signed as %.100q: somebody gave it another name", head.name)
		}
		s, err := splitTag(raw)
		if err != nil {
			return err
		}
		return keys.verify(s, now)
	}), what)
}

func (c *Checkout) raw(h plumbing.Hash, kind plumbing.ObjectType) ([]byte, error) {
	r, err := c.store.content(h, kind)
	if err != nil {
		return nil, failBy(OperationFailed, err, "the server did not send %s %s", kind, h)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, failBy(OperationFailed, diskError{err}, "reading %s %s", kind, h)
	}
	return b, nil
}

// about puts before an error what it is about.
func about(err error, what string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Message = what + ": " + e.Message
		return e
	}
	return err
}

// verify checks a signature.
func (k *Keys) verify(s signed, now time.Time) error {
	switch {
	case bytes.HasPrefix(s.signature, []byte(sshSignature)):
		return k.verifySSH(s, now)
	case bytes.HasPrefix(s.signature, []byte(pgpSignature)):
		return k.verifyPGP(s, now)
	}
	return fail(SignatureInvalid, "its signature is neither of OpenPGP nor of SSH, which are supported")
}

func (k *Keys) verifyPGP(s signed, now time.Time) error {
	config := &packet.Config{Time: func() time.Time { return now }}
	_, err := openpgp.CheckArmoredDetachedSignature(k.pgp, bytes.NewReader(s.payload), bytes.NewReader(s.signature), config)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return fail(SignerUnknown, "it is signed with OpenPGP by a key that is not among the trusted ones")
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired), errors.Is(err, pgperrors.ErrKeyRevoked):
		return failBy(SignerExpired, err, "it is signed by a trusted key that no longer counts: if the key was renewed, export it anew")
	}
	return failBy(SignatureInvalid, err, "its OpenPGP signature does not hold: what was signed is something else, or was changed since")
}

func (k *Keys) verifySSH(s signed, now time.Time) error {
	sig, err := sshsig.Unarmor(s.signature)
	if err != nil {
		return failBy(SignatureInvalid, err, "its SSH signature can't be read")
	}
	who := ssh.FingerprintSHA256(sig.PublicKey)
	if sig.Signature.Format == ssh.KeyAlgoRSA {
		return fail(SignatureInvalid, "its SSH signature, by %s, is made with SHA-1, which proves nothing", who)
	}
	for _, one := range k.ssh {
		if !bytes.Equal(one.key.Marshal(), sig.PublicKey.Marshal()) {
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(s.payload), sig, one.key, sig.HashAlgorithm, sshNamespace); err != nil {
			return failBy(SignatureInvalid, err, "its SSH signature, by %s, does not hold: what was signed is something else, or was changed since", who)
		}
		if !one.before.IsZero() && !now.Before(one.before) {
			return fail(SignerExpired, "it is signed by %s, which is trusted until %s only", who, one.before.Format(time.RFC3339))
		}
		if now.Before(one.after) {
			return fail(SignerExpired, "it is signed by %s, which is trusted from %s on only", who, one.after.Format(time.RFC3339))
		}
		return nil
	}
	return fail(SignerUnknown, "it is signed with SSH by %s, which is not among the trusted keys", who)
}
