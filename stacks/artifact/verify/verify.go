package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ksctl/gitops/stacks/artifact/oci"
)

const (
	// maxSignatures is how many signatures of one artifact are looked at.
	maxSignatures = 32
	// signatureBytes is the largest signature, with its certificates and proofs.
	signatureBytes = 2 << 20
	// toldFailures is how many failures a message tells.
	toldFailures = 3
)

// Verifier tells who signed an artifact.
type Verifier interface {
	// Verify gives the trusted signer of the artifact with a digest. The error is
	// an *Error, or an *oci.Error if the registry does not give out signatures.
	Verify(ctx context.Context, repo *oci.Repository, digest string) (signer string, err error)
}

// tally collects what is wrong with the signatures of one artifact.
type tally struct {
	what   string
	found  int
	failed []string
}

// add takes down why a signature is not valid. An error of the registry, which
// says nothing of the signature, is returned.
func (t *tally) add(where string, err error) error {
	if e, ok := errors.AsType[*oci.Error](err); ok && !ofContent(e) {
		return err
	}
	t.found++
	if len(t.failed) < toldFailures {
		t.failed = append(t.failed, fmt.Sprintf("%s: %.300s", where, err))
	}
	return nil
}

// ofContent is true for an error that means: the registry answered, and what it
// has is no signature.
func ofContent(e *oci.Error) bool {
	switch e.Reason {
	case oci.OperationFailed, oci.AuthenticationFailed, oci.AuthenticationRequired, oci.URLInvalid:
		return false
	}
	return true
}

// verdict is the error that ends a search in which no signature was valid.
func (t *tally) verdict(trusted string) error {
	if t.found == 0 {
		return fail(Unsigned, "%s has no signature: sign it, or take one that is signed", t.what)
	}
	s := strings.Join(t.failed, "; ")
	if more := t.found - len(t.failed); more > 0 {
		s += fmt.Sprintf("; and %d more", more)
	}
	return fail(Untrusted, "none of the %d signatures of %s is valid and by %s: %s", t.found, t.what, trusted, s)
}
