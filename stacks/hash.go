package stacks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// renderFormat is part of the digest. Change it when the same request renders a different result
// than before.
const renderFormat = "1"

// hashBytes is the length of a content hash: 16 characters of base64url.
const hashBytes = 12

// contentHash returns the hash of a manifest. That of a Secret, and of what contains a generated
// value or one of a Secret, is keyed: the content is often guessable, and a published hash must not
// disclose it.
func contentHash(o *manifest.Object, raw, key []byte, isGenerated bool) string {
	h := sha256.New()
	if o.Group == "" && o.Kind == "Secret" || isGenerated {
		h = hmac.New(sha256.New, key)
	}
	h.Write(raw)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:hashBytes])
}

// Digest returns the digest of all inputs of a render. It is keyed, because the inputs include
// values from Secrets and generated values. The digests of the artifact and the charts are inputs;
// the folders that they are unpacked in are not.
func Digest(req Request) (string, error) {
	key := req.SecretKey
	req.Root, req.SecretKey, req.ChartLimits = "", nil, ChartLimits{}
	// they only matter for values that become an input of the next render
	req.Generate.Derive, req.Generate.Now = nil, time.Time{}
	req.Releases = maps.Clone(req.Releases)
	for name, record := range req.Releases {
		record.Complete = false // only matters for another digest
		req.Releases[name] = record
	}
	if req.DecryptionKeyID != "" {
		req.Decrypted = nil
	}
	req.Charts = slices.Clone(req.Charts)
	for i := range req.Charts {
		req.Charts[i].Root = ""
	}
	req.Choices.Values = slices.Clone(req.Choices.Values)
	for i := range req.Choices.Values {
		// The source is for messages only, but the hashes of what a Secret reaches are keyed.
		in := &req.Choices.Values[i]
		if in.Source = ""; !in.Public {
			in.Source = "Secret"
		}
		in.Public = false
	}
	raw, err := manifest.Canonical(struct {
		Format  string  `json:"format"`
		Request Request `json:"request"`
	}{renderFormat, req})
	if err != nil {
		return "", &Error{Stack: req.Stack, Message: "the choices cannot be encoded as JSON", Err: err}
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(raw)
	return "sha256:" + hex.EncodeToString(mac.Sum(nil)), nil
}
