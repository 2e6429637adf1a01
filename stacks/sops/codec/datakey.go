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

// maxPartBytes is the maximum size of a part of the data key. It exceeds the real size, which is 32
// bytes, or 33 with Shamir's scheme.
const maxPartBytes = 64

// errMissing means that the Secret has no key for a part of the data key. The error for the file
// lists all such keys together, with advice.
var errMissing = errors.New("no matching key")

// keyResolver decrypts the data key of one file with the keys of a Secret. It implements the key
// service of the library.
type keyResolver struct {
	keyservice.UnimplementedKeyServiceServer
	// ctx is the context for the file, because the library passes none.
	ctx context.Context //nolint:containedctx // see above
	// requestsCtx has the deadline for all requests together.
	requestsCtx  context.Context //nolint:containedctx // see above
	keys         *material
	opts         options
	requestsLeft int // number of requests still allowed

	missingAge, missingPGP []string
	failures               []*Error
}

// keyTypeOrder is the order in which keys are tried: first the types that need no request.
var keyTypeOrder = []string{"age", "pgp", "kms", "gcp_kms", "azure_kv", "hc_vault", "hckms"}

// dataKey decrypts the data key, which encrypts the values of a file.
func dataKey(ctx context.Context, meta *library.Metadata, keys Keys, o options) ([]byte, error) {
	requestsCtx, cancel := context.WithTimeout(ctx, o.requestsTimeout)
	defer cancel()
	a := &keyResolver{ctx: ctx, requestsCtx: requestsCtx, keys: keys.material(), opts: o, requestsLeft: maxRequests}
	key, err := meta.GetDataKeyWithKeyServices([]keyservice.KeyServiceClient{keyservice.NewCustomLocalClient(a)},
		keyTypeOrder)
	if ctxErr := contextError(ctx); ctxErr != nil {
		return nil, ctxErr
	}
	if err != nil || len(key) == 0 {
		return nil, a.dataKeyError(keys)
	}
	return key, nil
}

// Decrypt implements keyservice.KeyServiceServer. It records failures for dataKeyError, and returns
// errMissing to the library.
func (a *keyResolver) Decrypt(_ context.Context, req *keyservice.DecryptRequest) (*keyservice.DecryptResponse, error) {
	if err := contextError(a.ctx); err != nil {
		return nil, err
	}
	part, name, err := a.decryptPart(req)
	switch {
	case err == nil && len(part) > maxPartBytes:
		err = newError(sops.IntegrityFailed, "the data key is too long")
	case err == nil && len(part) > 0:
		return &keyservice.DecryptResponse{Plaintext: part}, nil
	case err == nil:
		err = errMissing
	}
	if !errors.Is(err, errMissing) {
		e := *toError(err)
		e.Message = fmt.Sprintf("%s: %s", name, e.Message)
		a.failures = append(a.failures, &e)
	}
	return nil, errMissing // the library would include the text of any other error
}

// dataKeyError explains why the data key can't be decrypted, and what to do. The reason is that of
// the most relevant failure.
func (a *keyResolver) dataKeyError(keys Keys) error {
	e := &Error{Reason: sops.KeyMissing}
	for _, reason := range []Reason{sops.ServiceFailed, sops.AddressRefused, sops.IntegrityFailed, sops.FileInvalid,
		sops.KeyInvalid, sops.InternalFailure} {
		for _, f := range a.failures {
			if f.Reason == reason && e.Reason == sops.KeyMissing {
				e.Reason = reason
			}
		}
	}
	var details []string
	if len(a.missingAge) > 0 {
		available := "the Secret has no age identity (key *" + AgeSuffix + ")"
		if own := keys.Recipients(); len(own) > 0 {
			available = "the Secret has the identities of " + summarize(own)
		}
		details = append(details,
			fmt.Sprintf("the file is encrypted for the age recipients %s, and %s", summarize(a.missingAge), available))
	}
	if len(a.missingPGP) > 0 {
		available := "the Secret has no PGP key (key *" + PGPSuffix + ")"
		if len(a.keys.pgp) > 0 {
			var own []string
			for _, entity := range a.keys.pgp {
				own = append(own, fingerprint(entity))
			}
			available = "the Secret has the keys " + summarize(own)
		}
		details = append(details,
			fmt.Sprintf("the file is encrypted for the PGP keys %s, and %s", summarize(a.missingPGP), available))
	}
	const maxFailures = 5
	for i, f := range a.failures {
		if i == maxFailures {
			details = append(details, fmt.Sprintf("%d more keys failed", len(a.failures)-maxFailures))
			break
		}
		details = append(details, f.Message)
	}
	if len(details) == 0 {
		details = []string{"the file lists no keys"}
	}
	e.Message = "no key decrypts the file: " + strings.Join(details, "; ")
	return e
}
