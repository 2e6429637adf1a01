package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// gitTrust is the required signature of a Git source.
type gitTrust struct {
	mode appsv1.GitVerificationMode // empty: no verification
	keys *git.Keys
	// version is the version of the Secret with the keys.
	version string
}

func (t gitTrust) verifiesHEAD() bool {
	return t.mode == appsv1.VerifyHEAD || t.mode == appsv1.VerifyTagAndHEAD
}

func (t gitTrust) verifiesTag() bool {
	return t.mode == appsv1.VerifyTag || t.mode == appsv1.VerifyTagAndHEAD
}

// modeOf returns the verification mode of a source; empty if nothing is verified.
func modeOf(g *appsv1.GitSource) appsv1.GitVerificationMode {
	if g.Verify == nil {
		return ""
	}
	return cmp.Or(g.Verify.Mode, appsv1.VerifyHEAD)
}

// gitTrustOf reads the trusted keys of a source.
func (s *Steps) gitTrustOf(ctx context.Context, namespace string, g *appsv1.GitSource) (gitTrust, error) {
	t := gitTrust{mode: modeOf(g)}
	if t.mode == "" {
		return t, nil
	}
	secret, err := s.readSecret(ctx, namespace, g.Verify.SecretRef.Name, "spec.git.verify.secretRef")
	if err != nil {
		return t, err
	}
	t.version = string(secret.UID) + "/" + secret.ResourceVersion
	t.keys, err = git.ParseKeys(secret.Data)
	if e, ok := errors.AsType[*git.Error](err); ok {
		e.Message = "Secret " + namespace + "/" + secret.Name + " of spec.git.verify.secretRef: " + e.Message
	}
	return t, err
}

// verify verifies the required signatures.
func (s *Steps) verify(c *git.Checkout, t gitTrust) error {
	if t.verifiesTag() {
		if err := c.VerifyTag(t.keys, s.Clock.Now()); err != nil {
			return err
		}
	}
	if t.verifiesHEAD() {
		return c.VerifyCommit(t.keys, s.Clock.Now())
	}
	return nil
}

// contentOf identifies all inputs of an artifact besides the commit; empty if there are none.
func contentOf(obj *appsv1.KsctlSource, t gitTrust, chosen resolvedRef) string {
	recipe := struct {
		Ignore, Mode, Keys, Tag string
		Submodules              bool
	}{obj.Spec.Ignore, string(t.mode), t.version, "", obj.Spec.Git.RecurseSubmodules}
	if t.verifiesTag() {
		recipe.Tag = chosen.tag.Object // a tag can be replaced by another signed tag of the same commit
	}
	if recipe.Ignore == "" && recipe.Mode == "" && !recipe.Submodules {
		return ""
	}
	return fingerprint(recipe)
}

// fingerprint returns the hash of a struct.
func fingerprint(recipe any) string {
	b, err := json.Marshal(recipe)
	if err != nil {
		panic("source: strings can't be encoded: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// withdrawGit removes the artifact if it is not verified as required: it was created before
// verification was required, or the verification of its own commit failed. A verified artifact
// stays if the verification of another commit or the check itself fails. It returns cause.
func (s *Steps) withdrawGit(obj *appsv1.KsctlSource, revision string, cause error) error {
	a, mode := obj.Status.Artifact, modeOf(obj.Spec.Git)
	if a == nil || mode == "" {
		return cause
	}
	e, ok := errors.AsType[*git.Error](cause)
	return s.withdrawUnverified(obj, mode, ok && e.Unverified() && isOfCommit(a, commitOf(revision)), cause)
}

// withdrawUnverified removes the artifact from the status and the storage if it was verified in
// another mode than required, or is unverified. It returns cause, or an error of the storage.
func (s *Steps) withdrawUnverified(obj *appsv1.KsctlSource, mode appsv1.GitVerificationMode, unverified bool,
	cause error) error {
	if obj.Status.SourceVerificationMode == mode && !unverified {
		return cause
	}
	obj.Status.Artifact, obj.Status.SourceVerificationMode, obj.Status.ObservedContent = nil, "", ""
	if err := s.Storage.RemoveExcept(client.ObjectKeyFromObject(obj)); err != nil {
		return &storageError{errors.Join(cause, err)}
	}
	return cause
}
