package source

import (
	"context"
	"errors"
	"maps"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/artifact/verify"
)

// signedByKey is the metadata key of an artifact for its signer.
const signedByKey = "ksctl.com/signed-by"

// statusAnnotations are the annotations of an artifact in a registry that are copied to the status.
var statusAnnotations = []string{"org.opencontainers.image.created", "org.opencontainers.image.revision",
	"org.opencontainers.image.source"}

// maxAnnotationBytes bounds a copied annotation. Longer ones are omitted.
const maxAnnotationBytes = 512

func ociRefOf(o *appsv1.OCISource) oci.Ref {
	if o.Ref == nil {
		return oci.Ref{}
	}
	return oci.Ref{Tag: o.Ref.Tag, SemVer: o.Ref.SemVer, Digest: o.Ref.Digest}
}

func layerTypeOf(o *appsv1.OCISource) string {
	if o.LayerSelector == nil {
		return ""
	}
	return o.LayerSelector.MediaType
}

// digestOf returns the digest at the end of a revision.
func digestOf(revision string) string { return revision[strings.LastIndex(revision, "@")+1:] }

// refreshOCI updates the artifact in the status. It does not fetch an artifact whose digest is
// stored, and sends no request if the reference is such a digest.
func (s *Steps) refreshOCI(ctx context.Context,
	req *reconcile.Request[*appsv1.KsctlSource]) (revision string, err error) {
	obj := req.Object
	o := obj.Spec.OCI
	stored, err := s.storedArtifact(obj)
	if err != nil {
		return "", err
	}
	trusted, err := s.ociTrustOf(ctx, obj.Namespace, o)
	if err != nil {
		return "", err
	}
	access, err := s.ociAccess(ctx, obj.Namespace, o)
	if err != nil {
		return "", err
	}
	repo, err := s.OCI.Repository(o.URL, access)
	if err != nil {
		return "", err
	}
	defer repo.Close()
	target, err := repo.Resolve(ctx, ociRefOf(o))
	if err != nil {
		return "", err
	}
	revision, content := target.Revision(), trusted.content(obj)
	if stored != nil && digestOf(stored.Revision) == target.Digest && obj.Status.ObservedContent == content {
		return s.reuseArtifact(obj, stored, revision), nil
	}
	return revision, s.fetchOCI(ctx, obj, repo, target, trusted)
}

// fetchOCI verifies and fetches an artifact, stores its files and sets the artifact in the status.
func (s *Steps) fetchOCI(ctx context.Context, obj *appsv1.KsctlSource, repo *oci.Repository, target oci.ResolvedRef,
	trusted ociTrust) (err error) {
	metadata := map[string]string{}
	if trusted.verifier != nil {
		if metadata[signedByKey], err = trusted.verifier.Verify(ctx, repo, target.Digest); err != nil {
			return err
		}
	}
	tree, err := repo.Fetch(ctx, target.Digest, layerTypeOf(obj.Spec.OCI))
	if err != nil {
		return err
	}
	defer closeFiles(tree, &err)
	next, err := s.store(ctx, obj, tree.FS())
	if err != nil {
		return err
	}
	next.Revision = target.Revision()
	addMetadata(next, metadata, tree.Annotations)
	return s.publish(obj, next, appsv1.GitVerificationMode(trusted.provider), trusted.content(obj))
}

// addMetadata adds the signer and the annotations to the metadata of an artifact.
func addMetadata(a *fluxmeta.Artifact, metadata, annotations map[string]string) {
	for _, name := range statusAnnotations {
		if value := annotations[name]; value != "" && len(value) <= maxAnnotationBytes {
			metadata[name] = value
		}
	}
	maps.Copy(metadata, a.Metadata)
	if len(metadata) > 0 {
		a.Metadata = metadata
	}
}

// withdrawOCI does the same as withdrawGit for an artifact of a registry.
func (s *Steps) withdrawOCI(obj *appsv1.KsctlSource, revision string, cause error) error {
	a, v := obj.Status.Artifact, obj.Spec.OCI.Verify
	if a == nil || v == nil {
		return cause
	}
	e, ok := errors.AsType[*verify.Error](cause)
	unverified := ok && e.Reason != verify.MaterialInvalid && revision != "" &&
		digestOf(a.Revision) == digestOf(revision)
	return s.withdrawUnverified(obj, appsv1.GitVerificationMode(v.Provider), unverified, cause)
}
