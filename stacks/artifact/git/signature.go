package git

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// signedObject is a signed object, split into the signed payload and its signature. The payload
// is byte for byte what was signed: decoding and encoding an object would drop headers that
// the decoder does not know.
type signedObject struct {
	payload, signature []byte
}

// First lines of signatures.
const (
	pgpSignature  = "-----BEGIN PGP SIGNATURE-----"
	pgpMessage    = "-----BEGIN PGP MESSAGE-----"
	sshSignature  = "-----BEGIN SSH SIGNATURE-----"
	x509Signature = "-----BEGIN SIGNED MESSAGE-----"
)

// maxSignatureBytes is far more than the size of a signature by the largest key.
const maxSignatureBytes = 64 << 10

// splitCommit removes the signature from a commit: the header gpgsig, whose continuation lines
// begin with a space. Like git, it also removes the header gpgsig-sha256.
func splitCommit(raw []byte) (signedObject, error) {
	var payload, signature bytes.Buffer
	var into *bytes.Buffer // target of the current header; nil drops it
	found := 0
	for rest := raw; len(rest) > 0; {
		var line []byte
		line, rest = cutLine(rest)
		if line[0] == '\n' { // the end of the headers
			payload.Write(line)
			payload.Write(rest)
			break
		}
		if line[0] != ' ' {
			name, _, _ := bytes.Cut(line, []byte(" "))
			switch string(name) {
			case "gpgsig":
				found++
				into = &signature
				line = line[len("gpgsig"):]
			case "gpgsig-sha256":
				into = nil
			default:
				into = &payload
			}
		}
		if into == &signature && len(line) > 0 {
			line = line[1:] // the space
		}
		if into != nil {
			into.Write(line)
		}
	}
	if found > 1 {
		return signedObject{}, newError(SignatureInvalid, "the commit has %d signatures, expected one", found)
	}
	s := signedObject{payload: payload.Bytes(), signature: signature.Bytes()}
	return s, s.validate()
}

// splitTag removes the signature from the end of a tag. Like git, it uses the last line that
// begins a signature.
func splitTag(raw []byte) (signedObject, error) {
	s := signedObject{payload: raw}
	at := 0
	for line := range bytes.Lines(raw) {
		if beginsSignature(line) {
			s.payload, s.signature = raw[:at], raw[at:]
		}
		at += len(line)
	}
	return s, s.validate()
}

func cutLine(b []byte) (line, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return b[:i+1], b[i+1:]
	}
	return b, nil
}

func beginsSignature(line []byte) bool {
	for _, begin := range []string{pgpSignature, pgpMessage, sshSignature, x509Signature} {
		if bytes.HasPrefix(line, []byte(begin)) {
			return true
		}
	}
	return false
}

func (s signedObject) validate() error {
	switch {
	case len(s.signature) == 0:
		return newError(SignatureMissing, "the signature is missing")
	case len(s.signature) > maxSignatureBytes:
		return newError(SignatureInvalid, "the signature has more than %d bytes", maxSignatureBytes)
	}
	return nil
}

// tagHeader holds the headers of a tag object.
type tagHeader struct {
	object, kind, name string
}

// readTagHeader parses the first three headers of a tag object.
func readTagHeader(raw []byte) (tagHeader, error) {
	var t tagHeader
	rest := raw
	for _, field := range []struct {
		name string
		into *string
	}{{"object", &t.object}, {"type", &t.kind}, {"tag", &t.name}} {
		var line []byte
		line, rest = cutLine(rest)
		value, ok := strings.CutPrefix(string(line), field.name+" ")
		if !ok {
			return t, fmt.Errorf("the header %q is missing or in the wrong place", field.name)
		}
		*field.into = strings.TrimSuffix(value, "\n")
	}
	return t, nil
}

// sshNamespace is the namespace of Git's SSH signatures.
const sshNamespace = "git"

// VerifyCommit checks that one of the keys signed the commit. A key that is expired at the time
// now is not accepted, even for earlier signatures: the author of a commit can set any time in
// it. The error is an *Error.
func (c *Checkout) VerifyCommit(keys *Keys, now time.Time) error {
	raw, err := c.readObject(plumbing.NewHash(c.Commit), plumbing.CommitObject)
	if err != nil {
		return err
	}
	return prefixError(recoverPanic(func() error {
		s, err := splitCommit(raw)
		if err != nil {
			return err
		}
		return keys.verify(s, now)
	}), "commit "+c.Commit)
}

// VerifyTag checks the tag with which the checkout was fetched: it must be annotated, signed by
// one of the keys, and contain this commit and this name, because a server could serve a
// signed tag under another name.
func (c *Checkout) VerifyTag(keys *Keys, now time.Time) error {
	subject := "tag " + quoteName(c.tag.Name)
	if c.tag.Object == "" {
		return newError(SignatureMissing,
			"%s is not annotated and can't have a signature: create it with git tag --sign", subject)
	}
	raw, err := c.readObject(plumbing.NewHash(c.tag.Object), plumbing.TagObject)
	if err != nil {
		return err
	}
	return prefixError(recoverPanic(func() error {
		header, err := readTagHeader(raw)
		if err != nil {
			return wrapError(SignatureInvalid, err, "the tag object can't be read")
		}
		if header.kind != plumbing.CommitObject.String() || header.object != c.Commit {
			return newError(SignatureInvalid, "the signed tag is for the %.20s %.64s, not for commit %s", header.kind,
				header.object, c.Commit)
		}
		if header.name != c.tag.Name {
			return newError(SignatureInvalid, "the tag was signed as %.100q and renamed afterwards", header.name)
		}
		s, err := splitTag(raw)
		if err != nil {
			return err
		}
		return keys.verify(s, now)
	}), subject)
}

func (c *Checkout) readObject(h plumbing.Hash, kind plumbing.ObjectType) ([]byte, error) {
	r, err := c.store.content(h, kind)
	if err != nil {
		return nil, wrapError(OperationFailed, err, "the server did not send %s %s", kind, h)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, wrapError(OperationFailed, diskError{err}, "reading %s %s", kind, h)
	}
	return b, nil
}

// prefixError prepends the name of an object to the message of an *Error.
func prefixError(err error, subject string) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Message = subject + ": " + e.Message
		return e
	}
	return err
}

// verify checks the signature of an object.
func (k *Keys) verify(s signedObject, now time.Time) error {
	switch {
	case bytes.HasPrefix(s.signature, []byte(sshSignature)):
		return k.verifySSH(s, now)
	case bytes.HasPrefix(s.signature, []byte(pgpSignature)):
		return k.verifyPGP(s, now)
	}
	return newError(SignatureInvalid, "the signature is neither an OpenPGP nor an SSH signature")
}

func (k *Keys) verifyPGP(s signedObject, now time.Time) error {
	config := &packet.Config{Time: func() time.Time { return now }}
	_, err := openpgp.CheckArmoredDetachedSignature(k.pgp, bytes.NewReader(s.payload), bytes.NewReader(s.signature),
		config)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return newError(SignerUnknown, "the OpenPGP signature is by a key that is not trusted")
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired),
		errors.Is(err, pgperrors.ErrKeyRevoked):
		return wrapError(SignerExpired, err,
			"the OpenPGP signature is by a trusted key that is expired or revoked: if the key was renewed, export "+
				"it again")
	}
	return wrapError(SignatureInvalid, err,
		"the OpenPGP signature is wrong: the content was changed after signing, or the signature is for other content")
}

func (k *Keys) verifySSH(s signedObject, now time.Time) error {
	sig, err := sshsig.Unarmor(s.signature)
	if err != nil {
		return wrapError(SignatureInvalid, err, "the SSH signature can't be read")
	}
	fingerprint := ssh.FingerprintSHA256(sig.PublicKey)
	if sig.Signature.Format == ssh.KeyAlgoRSA {
		return newError(SignatureInvalid, "the SSH signature by %s uses SHA-1, which is not secure", fingerprint)
	}
	for _, trusted := range k.ssh {
		if !bytes.Equal(trusted.key.Marshal(), sig.PublicKey.Marshal()) {
			continue
		}
		if err := sshsig.Verify(bytes.NewReader(s.payload), sig, trusted.key, sig.HashAlgorithm,
			sshNamespace); err != nil {
			return wrapError(SignatureInvalid, err,
				"the SSH signature by %s is wrong: the content was changed after signing, or the signature is for "+
					"other content", fingerprint)
		}
		if !trusted.validBefore.IsZero() && !now.Before(trusted.validBefore) {
			return newError(SignerExpired, "the SSH signature is by %s, which is trusted only until %s", fingerprint,
				trusted.validBefore.Format(time.RFC3339))
		}
		if now.Before(trusted.validAfter) {
			return newError(SignerExpired, "the SSH signature is by %s, which is trusted only from %s", fingerprint,
				trusted.validAfter.Format(time.RFC3339))
		}
		return nil
	}
	return newError(SignerUnknown, "the SSH signature is by %s, which is not a trusted key", fingerprint)
}
