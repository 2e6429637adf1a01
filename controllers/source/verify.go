package source

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// trust is whose signatures a source asks for.
type trust struct {
	mode appsv1.GitVerificationMode // empty: none
	keys *git.Keys
	// version of the Secret with the keys.
	version string
}

func (t trust) head() bool {
	return t.mode == appsv1.VerifyHEAD || t.mode == appsv1.VerifyTagAndHEAD
}

func (t trust) tag() bool { return t.mode == appsv1.VerifyTag || t.mode == appsv1.VerifyTagAndHEAD }

// modeOf is what a source wants to be verified.
func modeOf(g *appsv1.GitSource) appsv1.GitVerificationMode {
	switch {
	case g.Verify == nil:
		return ""
	case g.Verify.Mode == "":
		return appsv1.VerifyHEAD
	}
	return g.Verify.Mode
}

// trustOf reads the keys that a source trusts.
func (s *Steps) trustOf(ctx context.Context, namespace string, g *appsv1.GitSource) (trust, error) {
	t := trust{mode: modeOf(g)}
	if t.mode == "" {
		return t, nil
	}
	secret, err := s.secret(ctx, namespace, g.Verify.SecretRef.Name, "spec.git.verify.secretRef")
	if err != nil {
		return t, err
	}
	t.version = string(secret.UID) + "/" + secret.ResourceVersion
	t.keys, err = git.ParseKeys(secret.Data)
	if e, ok := errors.AsType[*git.Error](err); ok {
		e.Message = "the Secret " + namespace + "/" + secret.Name + " of spec.git.verify.secretRef: " + e.Message
	}
	return t, err
}

// verify checks the signatures that are asked for.
func (s *Steps) verify(c *git.Checkout, t trust) error {
	if t.tag() {
		if err := c.VerifyTag(t.keys, s.Clock.Now()); err != nil {
			return err
		}
	}
	if t.head() {
		return c.VerifyCommit(t.keys, s.Clock.Now())
	}
	return nil
}

// contentOf identifies what makes an artifact of a commit; empty when that is
// the commit alone.
func contentOf(obj *appsv1.KsctlSource, t trust, chosen choice) string {
	recipe := struct {
		Ignore, Mode, Keys, Tag string
		Submodules              bool
	}{obj.Spec.Ignore, string(t.mode), t.version, "", obj.Spec.Git.RecurseSubmodules}
	if t.tag() {
		recipe.Tag = chosen.tag.Object // a tag can be signed anew
	}
	if recipe.Ignore == "" && recipe.Mode == "" && !recipe.Submodules {
		return ""
	}
	return fingerprint(recipe)
}

// fingerprint is a short name of what stands in a struct.
func fingerprint(recipe any) string {
	b, err := json.Marshal(recipe)
	if err != nil {
		panic("source: strings can't be encoded: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// withdraw takes an artifact back that is not verified as it has to be: it was
// made before anybody asked for that, or its own commit is what does not hold.
// One that was verified stays while another one, or the check itself, fails.
func (s *Steps) withdraw(obj *appsv1.KsctlSource, revision string, cause error) error {
	a, mode := obj.Status.Artifact, modeOf(obj.Spec.Git)
	if a == nil || mode == "" {
		return cause
	}
	e, ok := errors.AsType[*git.Error](cause)
	unverified := ok && e.Unverified() && holds(a, commitOf(revision))
	if obj.Status.SourceVerificationMode == mode && !unverified {
		return cause
	}
	return s.retract(obj, cause)
}

// retract takes an artifact back for a cause.
func (s *Steps) retract(obj *appsv1.KsctlSource, cause error) error {
	obj.Status.Artifact, obj.Status.SourceVerificationMode, obj.Status.ObservedContent = nil, "", ""
	if err := s.Storage.Keep(client.ObjectKeyFromObject(obj)); err != nil {
		return &storageError{errors.Join(cause, err)}
	}
	return cause
}
