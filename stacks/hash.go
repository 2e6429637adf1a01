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
	"github.com/ksctl/gitops/stacks/problem"
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
	if isSecret(o) || isGenerated {
		h = hmac.New(sha256.New, key)
	}
	h.Write(raw)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:hashBytes])
}

// rehashNames names the objects with generateName by their final content. As in contentHash, the
// hash of what may have a secret value is keyed.
func (r *renderRun) rehashNames(rendered [][]*manifest.Object) error {
	anyChanged := false
	for i, objects := range rendered {
		p := &r.resolved.Components[i]
		contains := keyedBy(p, r.generated[p.Component.Name])
		for _, o := range objects {
			if o.NameHash == "" {
				continue
			}
			raw, err := manifest.Canonical(o.Value)
			var key []byte
			if isSecret(o) || contains(raw) {
				key = append([]byte{}, r.req.SecretKey...)
			}
			changed := false
			if err == nil {
				changed, err = o.RehashName(key)
			}
			if err != nil {
				return r.withComponent(p, problem.Errorf(o.File, o.Line, "%s cannot be encoded as JSON", o))
			}
			anyChanged = anyChanged || changed
		}
	}
	if !anyChanged {
		return nil
	}
	return manifest.FindDuplicates(slices.Concat(rendered...)).Err()
}

func isSecret(o *manifest.Object) bool { return o.Group == "" && o.Kind == "Secret" }

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
