package codec

import (
	"context"
	"errors"
	"fmt"
	"strings"

	library "github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/keyservice"

	"github.com/ksctl/gitops/stacks/sops"
)

// partBytes is more than a part of the data key can have: 32 bytes, one more with
// Shamir's scheme.
const partBytes = 64

// errMissing: there is no key for it. What would help is said for all keys of the
// file together.
var errMissing = errors.New("no key for it")

// attempt is the opening of one file: the library's key service, which hands out what
// keys of a Secret open.
type attempt struct {
	keyservice.UnimplementedKeyServiceServer
	// ctx of the file: the library has none.
	ctx context.Context //nolint:containedctx // see above
	// asking is the ctx of all requests together.
	asking context.Context //nolint:containedctx // see above
	keys   *material
	opts   Options
	left   int // requests that may be made

	missingAge, missingPGP []string
	failed                 []*Error
}

// order in which keys are tried: those first for which nobody is asked.
var order = []string{"age", "pgp", "kms", "gcp_kms", "azure_kv", "hc_vault", "hckms"}

// dataKey finds the key that the values of a file are encrypted with.
func dataKey(ctx context.Context, meta *library.Metadata, keys Keys, o Options) ([]byte, error) {
	asking, cancel := context.WithTimeout(ctx, o.Limits.RequestsTimeout)
	defer cancel()
	a := &attempt{ctx: ctx, asking: asking, keys: keys.material(), opts: o, left: o.Limits.Requests}
	key, err := meta.GetDataKeyWithKeyServices([]keyservice.KeyServiceClient{keyservice.NewCustomLocalClient(a)}, order)
	if ended := ended(ctx); ended != nil {
		return nil, ended
	}
	if err != nil || len(key) == 0 {
		return nil, a.verdict(keys)
	}
	return key, nil
}

// Decrypt implements keyservice.KeyServiceServer. What it fails with is noted, and told in
// the words of verdict.
func (a *attempt) Decrypt(_ context.Context, req *keyservice.DecryptRequest) (*keyservice.DecryptResponse, error) {
	if err := ended(a.ctx); err != nil {
		return nil, err
	}
	part, name, err := a.open(req)
	switch {
	case err == nil && len(part) > partBytes:
		err = fail(sops.IntegrityFailed, "the data key is too long")
	case err == nil && len(part) > 0:
		return &keyservice.DecryptResponse{Plaintext: part}, nil
	case err == nil:
		err = errMissing
	}
	if !errors.Is(err, errMissing) {
		e := *ours(err)
		e.Message = fmt.Sprintf("%s: %s", name, e.Message)
		a.failed = append(a.failed, &e)
	}
	return nil, errMissing // the library gathers errors, and shows what they say
}

// verdict says why no data key was found, and what would help.
func (a *attempt) verdict(keys Keys) error {
	e := &Error{Reason: sops.KeyMissing}
	for _, reason := range []Reason{sops.ServiceFailed, sops.AddressRefused, sops.IntegrityFailed, sops.FileInvalid, sops.KeyInvalid, sops.Broken} {
		for _, f := range a.failed {
			if f.Reason == reason && e.Reason == sops.KeyMissing {
				e.Reason = reason
			}
		}
	}
	var said []string
	if len(a.missingAge) > 0 {
		held := "no age identity is given (a key *" + AgeSuffix + " of the Secret)"
		if own := keys.Recipients(); len(own) > 0 {
			held = "the identities that are given are those of " + listed(own)
		}
		said = append(said, fmt.Sprintf("it is encrypted to the age recipients %s, and %s", listed(a.missingAge), held))
	}
	if len(a.missingPGP) > 0 {
		held := "no PGP key is given (a key *" + PGPSuffix + " of the Secret)"
		if len(a.keys.pgp) > 0 {
			var own []string
			for _, entity := range a.keys.pgp {
				own = append(own, fingerprint(entity))
			}
			held = "the keys that are given are " + listed(own)
		}
		said = append(said, fmt.Sprintf("it is encrypted to the PGP keys %s, and %s", listed(a.missingPGP), held))
	}
	const most = 5
	for i, f := range a.failed {
		if i == most {
			said = append(said, fmt.Sprintf("%d more keys failed", len(a.failed)-most))
			break
		}
		said = append(said, f.Message)
	}
	if len(said) == 0 {
		said = []string{"it names none"}
	}
	e.Message = "the keys that are given do not open the file: " + strings.Join(said, "; ")
	return e
}
