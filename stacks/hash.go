package stacks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"

	"github.com/ksctl/gitops/stacks/internal/manifest"
)

// renderFormat changes whenever the same request renders something else than before.
const renderFormat = "1"

// hashBytes of a content hash; 16 characters of base64url.
const hashBytes = 12

// contentHash is that of a manifest; keyed for a Secret, whose content is often
// guessable, so that a published hash tells nothing about it.
func contentHash(o *manifest.Object, raw, key []byte) string {
	if o.Group == "" && o.Kind == "Secret" {
		mac := hmac.New(sha256.New, key)
		mac.Write(raw)
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:hashBytes])
	}
	sum := sha256.Sum256(raw)
	return base64.RawURLEncoding.EncodeToString(sum[:hashBytes])
}

// Digest of every input of a render. It is keyed, because values from Secrets are among them.
// Where the artifact and charts are unpacked is not an input; their digests are.
func Digest(req Request) (string, error) {
	key := req.SecretKey
	req.Root, req.SecretKey, req.ChartLimits = "", nil, ChartLimits{}
	if req.Keys != "" {
		req.Decrypted = nil
	}
	req.Charts = slices.Clone(req.Charts)
	for i := range req.Charts {
		req.Charts[i].Root = ""
	}
	req.Choices.Values = slices.Clone(req.Choices.Values)
	for i := range req.Choices.Values {
		// These are for messages only.
		req.Choices.Values[i].Public, req.Choices.Values[i].Source = false, ""
	}
	raw, err := manifest.Canonical(struct {
		Format  string  `json:"format"`
		Request Request `json:"request"`
	}{renderFormat, req})
	if err != nil {
		return "", &Error{Stack: req.Stack, Message: "the choices cannot be written as JSON", Err: err}
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(raw)
	return "sha256:" + hex.EncodeToString(mac.Sum(nil)), nil
}
