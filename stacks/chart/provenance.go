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

// maxProvenance is the maximum size of a .prov file, which has a Chart.yaml, a digest and a
// signature.
const maxProvenance = 1 << 20

// readKeyring reads the OpenPGP public keys of a Secret. A value has one or several keys, armored
// or binary.
func readKeyring(data map[string][]byte) (openpgp.EntityList, error) {
	var out openpgp.EntityList
	for _, name := range slices.Sorted(maps.Keys(data)) {
		keys, err := readPublicKeys(data[name])
		if err != nil || len(keys) == 0 {
			return nil, terminalError(SecretInvalid, "key %q of the verification Secret is not an OpenPGP public key", name)
		}
		out = append(out, keys...)
	}
	if len(out) == 0 {
		return nil, terminalError(SecretInvalid, "the verification Secret has no key")
	}
	return out, nil
}

func readPublicKeys(data []byte) (openpgp.EntityList, error) {
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

// verifyProvenance checks that a .prov file is signed by a key of the ring, and that it lists the
// digest of the archive under one of the file names. It does not use Helm's own function, because
// that requires the archive, and only the digest is signed.
func verifyProvenance(ring openpgp.EntityList, prov []byte, digest string, files ...string) *Error {
	block, _ := clearsign.Decode(prov)
	if block == nil {
		return terminalError(Unverified, "the .prov file contains no signed message")
	}
	_, err := block.VerifySignature(ring, nil)
	switch {
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return terminalError(Unverified, "the .prov file is not signed by a key of the verification Secret")
	case errors.Is(err, pgperrors.ErrKeyExpired), errors.Is(err, pgperrors.ErrSignatureExpired):
		return terminalError(Unverified, "the signature of the .prov file, or its key, has expired")
	case err != nil:
		return &Error{Reason: Unverified, Message: "the signature of the .prov file is invalid", Err: err}
	}
	var sums provenance.SumCollection
	if err := provenance.ParseMessageBlock(block.Plaintext, nil, &sums); err != nil {
		return &Error{Reason: Unverified, Message: "the signed content of the .prov file can't be parsed", Err: err}
	}
	for _, name := range files {
		if got, there := sums.Files[name]; there && got == digest {
			return nil
		}
	}
	return terminalError(Unverified, "the .prov file signs another archive: want digest %s for %s", digest, files[0])
}
