package chart

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"helm.sh/helm/v4/pkg/provenance"
)

// maxProvenance bounds a .prov file: a Chart.yaml, a digest and a signature.
const maxProvenance = 1 << 20

// keyring reads OpenPGP keys, armored or not, several in one or each on its own.
func keyring(data map[string][]byte) (openpgp.EntityList, error) {
	var out openpgp.EntityList
	for _, name := range slices.Sorted(maps.Keys(data)) {
		keys, err := readKeys(data[name])
		if err != nil || len(keys) == 0 {
			return nil, fail(SecretInvalid, "key %q of the Secret that charts are verified with is no OpenPGP public key", name)
		}
		out = append(out, keys...)
	}
	if len(out) == 0 {
		return nil, fail(SecretInvalid, "the Secret that charts are verified with holds no key")
	}
	return out, nil
}

func readKeys(data []byte) (openpgp.EntityList, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("-----BEGIN")) {
		return openpgp.ReadKeyRing(bytes.NewReader(data))
	}
	var out openpgp.EntityList
	for r := bytes.NewReader(data); ; {
		block, err := armor.Decode(r)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		keys, err := openpgp.ReadKeyRing(block.Body)
		if err != nil {
			return nil, err
		}
		out = append(out, keys...)
	}
}

// verifyProvenance checks that a .prov file is signed by a key of the ring, and that it names
// the digest of the archive under one of its names. Helm's own function wants the
// archive; its digest is all that is signed.
func verifyProvenance(ring openpgp.EntityList, prov []byte, digest string, files ...string) *Error {
	block, _ := clearsign.Decode(prov)
	if block == nil {
		return fail(Unverified, "its .prov file holds no signed message")
	}
	_, err := block.VerifySignature(ring, nil)
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return fail(Unverified, "its .prov file is signed by no key of the Secret")
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
		return fail(Unverified, "the signature of its .prov file, or the key that made it, has expired")
	case err != nil:
		return &Error{Reason: Unverified, Message: "the signature of its .prov file is wrong", Err: err}
	}
	var sums provenance.SumCollection
	if err := provenance.ParseMessageBlock(block.Plaintext, nil, &sums); err != nil {
		return &Error{Reason: Unverified, Message: "what its .prov file signs can't be read", Err: err}
	}
	for _, name := range files {
		if got, there := sums.Files[name]; there && got == digest {
			return nil
		}
	}
	return fail(Unverified, "its .prov file signs another archive: %s is expected in it for %s", digest, files[0])
}
