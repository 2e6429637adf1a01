package verify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ksctl/gitops/stacks/artifact/oci"
)

const (
	// maxSignatures bounds the number of signatures per artifact that are checked.
	maxSignatures = 32
	// maxSignatureBytes bounds the size of one signature with its certificates and proofs.
	maxSignatureBytes = 2 << 20
	// maxReportedFailures bounds the number of failures in a message.
	maxReportedFailures = 3
)

// Verifier verifies the signatures of artifacts.
type Verifier interface {
	// Verify returns the trusted signer of the artifact with a digest. The error is an
	// *Error, or an *oci.Error if the signatures can't be read from the registry.
	Verify(ctx context.Context, repo *oci.Repository, digest string) (signer string, err error)
}

// failures collects the failed signatures of one artifact.
type failures struct {
	artifact string
	count    int
	messages []string
}

// add records why a signature is not valid. It returns errors of the registry, which do not
// show whether the signature is valid.
func (t *failures) add(signature string, err error) error {
	if e, ok := errors.AsType[*oci.Error](err); ok && !isContentError(e) {
		return err
	}
	t.count++
	if len(t.messages) < maxReportedFailures {
		t.messages = append(t.messages, fmt.Sprintf("%s: %.300s", signature, err))
	}
	return nil
}

// isContentError is true if the registry responded, but its content is not a signature.
func isContentError(e *oci.Error) bool {
	switch e.Reason {
	case oci.OperationFailed, oci.AuthenticationFailed, oci.AuthenticationRequired, oci.URLInvalid:
		return false
	}
	return true
}

// toError returns the error of an artifact without a valid signature.
func (t *failures) toError(trustedSigner string) error {
	if t.count == 0 {
		return newError(Unsigned, "%s has no signature: sign it, or use a signed artifact", t.artifact)
	}
	s := strings.Join(t.messages, "; ")
	if omitted := t.count - len(t.messages); omitted > 0 {
		s += fmt.Sprintf("; and %d more", omitted)
	}
	return newError(Untrusted, "none of the %d signatures of %s is valid and made by %s: %s", t.count, t.artifact,
		trustedSigner, s)
}
