package source

import (
	"context"
	"errors"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/artifact/verify"
)

// signedByKey is the metadata of an artifact that says who signed it.
const signedByKey = "ksctl.com/signed-by"

// passedOn are the annotations of an artifact in a registry that stand in the
// status, too.
var passedOn = []string{"org.opencontainers.image.created", "org.opencontainers.image.revision", "org.opencontainers.image.source"}

// longestAnnotation is how much of one does.
const longestAnnotation = 512

func refOf(o *appsv1.OCISource) oci.Ref {
	if o.Ref == nil {
		return oci.Ref{}
	}
	return oci.Ref{Tag: o.Ref.Tag, SemVer: o.Ref.SemVer, Digest: o.Ref.Digest}
}

func selectorOf(o *appsv1.OCISource) oci.Selector {
	if o.LayerSelector == nil {
		return oci.Selector{}
	}
	return oci.Selector{MediaType: o.LayerSelector.MediaType}
}

// digestOf is the digest that a revision of a registry ends with.
func digestOf(revision string) string { return revision[strings.LastIndex(revision, "@")+1:] }

// refreshOCI makes the artifact in the status what is wanted, with the least
// work: what has the digest of an artifact that is kept is not fetched, and by
// digest not even looked for.
func (s *Steps) refreshOCI(ctx context.Context, obj *appsv1.KsctlSource) (revision string, err error) {
	o := obj.Spec.OCI
	kept, err := s.kept(obj)
	if err != nil {
		return "", err
	}
	trusted, err := s.trustOfOCI(ctx, obj.Namespace, o)
	if err != nil {
		return "", err
	}
	access, err := s.accessOCI(ctx, obj.Namespace, o)
	if err != nil {
		return "", err
	}
	repo, err := s.OCI.Repository(o.URL, access)
	if err != nil {
		return "", err
	}
	defer repo.Close()
	target, err := repo.Resolve(ctx, refOf(o))
	if err != nil {
		return "", err
	}
	revision, content := target.Revision(), trusted.content(obj)
	if kept != nil && digestOf(kept.Revision) == target.Digest && obj.Status.ObservedContent == content {
		return s.keep(obj, kept, revision), nil
	}
	return revision, s.fetchOCI(ctx, obj, repo, target, trusted)
}

// fetchOCI gets an artifact, if somebody trusted has signed it, keeps its files
// and writes them into the status.
func (s *Steps) fetchOCI(ctx context.Context, obj *appsv1.KsctlSource, repo *oci.Repository, target oci.Target, trusted trustOCI) (err error) {
	metadata := map[string]string{}
	if trusted.verifier != nil {
		if metadata[signedByKey], err = trusted.verifier.Verify(ctx, repo, target.Digest); err != nil {
			return err
		}
	}
	tree, err := repo.Fetch(ctx, target.Digest, selectorOf(obj.Spec.OCI))
	if err != nil {
		return err
	}
	defer func() {
		if cerr := tree.Close(); cerr != nil && err == nil {
			err = &storageError{cerr}
		}
	}()
	next, err := s.store(ctx, obj, tree.FS())
	if err != nil {
		return err
	}
	next.Revision = target.Revision()
	describe(next, metadata, tree.Annotations)
	return s.publish(obj, next, appsv1.GitVerificationMode(trusted.provider), trusted.content(obj))
}

// describe adds to an artifact who signed it and where it comes from.
func describe(a *fluxmeta.Artifact, metadata, annotations map[string]string) {
	for _, name := range passedOn {
		if said := annotations[name]; said != "" && len(said) <= longestAnnotation {
			metadata[name] = said
		}
	}
	for name, said := range a.Metadata {
		metadata[name] = said
	}
	if len(metadata) > 0 {
		a.Metadata = metadata
	}
}

// withdrawOCI is withdraw for an artifact of a registry.
func (s *Steps) withdrawOCI(obj *appsv1.KsctlSource, revision string, cause error) error {
	a, v := obj.Status.Artifact, obj.Spec.OCI.Verify
	if a == nil || v == nil {
		return cause
	}
	e, ok := errors.AsType[*verify.Error](cause)
	unverified := ok && e.Reason != verify.MaterialInvalid && revision != "" && digestOf(a.Revision) == digestOf(revision)
	if obj.Status.SourceVerificationMode == appsv1.GitVerificationMode(v.Provider) && !unverified {
		return cause
	}
	return s.retract(obj, cause)
}

// reasonOfOCI is the reason of an error about a registry or a signature.
func reasonOfOCI(err error) (string, bool) {
	if e, ok := errors.AsType[*verify.Error](err); ok {
		return string(e.Reason), true
	}
	if e, ok := errors.AsType[*oci.Error](err); ok {
		return string(e.Reason), true
	}
	return "", false
}
