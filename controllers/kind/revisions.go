package kind

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
)

// Revisions keeps the files of the stacks of KsctlKinds with a rollout, each revision in a Secret.
// Objects stay at their revision also when the source does not have it any more.
type Revisions struct {
	// Client reads from and writes to the API server.
	Client client.Client
	// Namespace of the Secrets.
	Namespace string
	Fetcher   *artifact.Fetcher
}

// maxRevisionBytes is the maximum size of the compressed files of a stack. A Secret has at most 1
// MiB.
const maxRevisionBytes = 900 << 10

// Keys and the label of a Secret with a revision. The value of the label is a hash of the name of
// the KsctlKind.
const (
	revisionSecretType = "ksctl.com/revision"
	revisionTarball    = "stack.tar.gz"
	revisionStack      = "stack"
	revisionOwnerLabel = "apps.ksctl.com/revision-of"
)

// keep stores the folder of a stack, and returns it as an artifact. The errors are a
// *reconcile.StepError, and those of artifact.Pack and of the API server.
func (r *Revisions) keep(ctx context.Context, owner, stack, folder, revision string) (artifact.Artifact, error) {
	var tarball bytes.Buffer
	packed, err := artifact.Pack(ctx, &tarball, os.DirFS(filepath.FromSlash(folder)), artifact.PackOptions{})
	if err != nil {
		return artifact.Artifact{}, err
	}
	if packed.Size > maxRevisionBytes {
		return artifact.Artifact{}, reconcile.NewTerminalError(appsv1.InvalidStackReason,
			"the compressed folder of stack %q has %d KiB, but spec.rollout keeps it in a Secret of at most %d KiB: "+
				"move other files out of the folder, or remove spec.rollout", stack, packed.Size>>10,
			maxRevisionBytes>>10)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace,
		Name: revisionSecretName(owner, packed.Digest), Labels: map[string]string{revisionOwnerLabel: shortHash(owner)},
		Annotations: map[string]string{appsv1.KindAnnotation: owner}},
		Type: revisionSecretType, Immutable: ptr.To(true),
		Data: map[string][]byte{revisionTarball: tarball.Bytes(), revisionStack: []byte(stack)}}
	if err := r.Client.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return artifact.Artifact{}, err
	}
	return r.artifact(owner, revision, packed.Digest), nil
}

// artifact returns a kept revision as an artifact.
func (r *Revisions) artifact(owner, revision, digest string) artifact.Artifact {
	return artifact.Artifact{URL: "http://revisions/" + revisionSecretName(owner, digest), Revision: revision,
		Digest: digest, Client: &http.Client{Transport: r}}
}

// load returns a kept revision, and whether it exists.
func (r *Revisions) load(ctx context.Context, owner string, taken *appsv1.TakenArtifact) (*publication, bool, error) {
	var secret corev1.Secret
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace,
		Name: revisionSecretName(owner, taken.Digest)}, &secret)
	if err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	p := &publication{artifact: r.artifact(owner, taken.Revision, taken.Digest),
		stack: string(secret.Data[revisionStack])}
	tree, err := r.Fetcher.Fetch(ctx, p.artifact)
	if err != nil {
		return nil, false, err
	}
	defer tree.Release()
	p.template, err = stacks.LoadKind(tree.Root, p.path, p.stack)
	return p, err == nil, err
}

// prune deletes the revisions of a KsctlKind, except those whose Secret keep accepts by its name.
func (r *Revisions) prune(ctx context.Context, owner string, keep func(secret string) bool) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.Client.List(ctx, list, client.InNamespace(r.Namespace),
		client.MatchingLabels{revisionOwnerLabel: shortHash(owner)}); err != nil {
		return err
	}
	for i := range list.Items {
		secret := &list.Items[i]
		if secret.Annotations[appsv1.KindAnnotation] != owner || keep(secret.Name) {
			continue
		}
		err := r.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// RoundTrip implements http.RoundTripper: it answers a request for a revision from its Secret, so
// that revisions use the same checks and the same cache as other artifacts.
func (r *Revisions) RoundTrip(req *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{}, Body: http.NoBody}
	var secret corev1.Secret
	err := r.Client.Get(req.Context(), client.ObjectKey{Namespace: r.Namespace,
		Name: strings.TrimPrefix(req.URL.Path, "/")}, &secret)
	if apierrors.IsNotFound(err) {
		response.StatusCode = http.StatusNotFound
		return response, nil
	}
	if err != nil {
		return nil, err
	}
	tarball := secret.Data[revisionTarball]
	response.ContentLength, response.Body = int64(len(tarball)), io.NopCloser(bytes.NewReader(tarball))
	return response, nil
}

// revisionSecretName returns the name of the Secret of a revision of a KsctlKind.
func revisionSecretName(owner, digest string) string {
	return "ksctl-revision-" + shortHash(owner+"/"+digest)
}

func shortHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
