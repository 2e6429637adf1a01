package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
)

// originKey is the metadata key for the source revision that an artifact was rendered from. Flux's
// controllers show it in their status and events.
const originKey = "org.opencontainers.image.revision"

// readTimeout bounds a read of the cache, which blocks while it cannot list a kind.
const readTimeout = 10 * time.Second

// Publisher writes ExternalArtifacts, and stores and serves their artifacts.
type Publisher struct {
	// Client reads from the cache and writes to the API server. Direct reads from the API server.
	Client client.Client
	Direct client.Reader
	// Serves reports whether the cluster serves a kind.
	Serves func(context.Context, schema.GroupKind) (bool, error)
	// Storage stores the artifacts. Limits bound each of them.
	Storage *storage.Space
	Limits  artifact.Limits
	// FieldOwner is the field manager of all writes.
	FieldOwner string
	Clock      clock.PassiveClock
}

// Publication is the content that an owner publishes.
type Publication struct {
	// Owner is the publishing object, Kind its kind.
	Owner client.Object
	Kind  schema.GroupVersionKind
	// Version is the version of the content for users. Origin is the source revision that it was
	// rendered from.
	Version, Origin string
	// MayContainSecrets is true if the files may contain Secrets.
	MayContainSecrets bool
	// ContentID identifies the files: Files is not called again while it stays the same.
	ContentID string
	Files     func(context.Context) (fs.FS, error)
}

// State is what a process remembers about the last publication of an owner. It is a cache: losing
// it costs one packing and a few requests.
type State struct {
	contentID string
	packed    artifact.Packed
	// written is the ExternalArtifact as last written. The cache may lag behind it.
	written *sourcev1.ExternalArtifact
}

// Publish brings the ExternalArtifact of an owner to its desired state, and returns the revision.
// If it is up to date, Publish sends no requests to the API server and packs nothing.
func (p *Publisher) Publish(ctx context.Context, o *Publication, state *State) (revision string, err error) {
	if err := p.checkServed(ctx); err != nil {
		return "", err
	}
	key := client.ObjectKeyFromObject(o.Owner)
	have, err := p.read(ctx, key, state)
	if err != nil {
		return "", fmt.Errorf("reading ExternalArtifact %s: %w", key, err)
	}
	if err := checkOwner(have, o.Owner); err != nil {
		return "", err
	}
	if err := p.store(ctx, key, o, have, state); err != nil {
		return "", err
	}
	want, err := p.desiredArtifact(key, o, state)
	if err != nil {
		return "", err
	}
	if err := p.write(ctx, o, have, want, state); err != nil {
		return "", fmt.Errorf("writing ExternalArtifact %s: %w", key, err)
	}
	return want.Revision, nil
}

// Withdraw deletes the ExternalArtifact of an owner, if the owner controls it, and the stored
// artifacts.
func (p *Publisher) Withdraw(ctx context.Context, owner client.Object, state *State) error {
	key := client.ObjectKeyFromObject(owner)
	if err := p.checkServed(ctx); err == nil {
		have := &sourcev1.ExternalArtifact{}
		err := p.Direct.Get(ctx, key, have)
		if err == nil && metav1.IsControlledBy(have, owner) {
			err = p.Client.Delete(ctx, have, client.Preconditions{UID: &have.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ExternalArtifact %s: %w", key, err)
		}
	} else if _, notServed := errors.AsType[*sourceref.Error](err); !notServed { // otherwise no object exists
		return err
	}
	*state = State{}
	return p.Storage.Remove(key)
}

// checkServed returns a *sourceref.Error if the cluster does not serve ExternalArtifacts.
func (p *Publisher) checkServed(ctx context.Context) error {
	gvk := sourcev1.GroupVersion.WithKind(sourcev1.ExternalArtifactKind)
	serves, err := p.Serves(ctx, gvk.GroupKind())
	if err != nil {
		return fmt.Errorf("checking whether the cluster serves %s: %w", gvk.Kind, err)
	}
	if !serves {
		return &sourceref.Error{Reason: sourceref.NotServed, Message: fmt.Sprintf("the cluster does not serve %s in "+
			"%s: install Flux's source-controller, or its "+
			"CustomResourceDefinition, in a version that serves it", gvk.Kind, gvk.GroupVersion())}
	}
	return nil
}

// read returns the ExternalArtifact, or nil if it does not exist. If the cache lags behind the last
// write, read returns the object as written.
func (p *Publisher) read(ctx context.Context, key types.NamespacedName,
	state *State) (*sourcev1.ExternalArtifact, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	have := &sourcev1.ExternalArtifact{}
	err := p.Client.Get(ctx, key, have)
	if apierrors.IsNotFound(err) && state.written != nil {
		err = p.Direct.Get(ctx, key, have) // deleted, or not in the cache yet
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if w := state.written; w != nil && w.UID == have.UID {
		if order, err := resourceversion.CompareResourceVersion(w.ResourceVersion, have.ResourceVersion); err == nil &&
			order > 0 {
			return w.DeepCopy(), nil
		}
	}
	return have, nil
}

// store stores the files of a publication, unless they are stored already. It keeps the previous
// artifact for clients that are about to download it, unless that may contain Secrets that the
// owner no longer publishes.
func (p *Publisher) store(ctx context.Context, key types.NamespacedName, o *Publication,
	have *sourcev1.ExternalArtifact, state *State) error {
	if state.contentID == o.ContentID {
		if stored, err := p.Storage.Has(key, state.packed.Digest); stored || err != nil {
			return err
		}
	}
	files, err := o.Files(ctx)
	if err != nil {
		return err
	}
	_, packed, err := p.Storage.Store(ctx, key, files, artifact.PackOptions{Limits: p.Limits})
	if err != nil {
		return err
	}
	keep := []string{packed.Digest}
	if have != nil && have.Status.Artifact != nil && (o.MayContainSecrets || !mayContainSecrets(have)) {
		keep = append(keep, have.Status.Artifact.Digest)
	}
	if err := p.Storage.RemoveExcept(key, keep...); err != nil {
		return err
	}
	state.contentID, state.packed = o.ContentID, packed
	return nil
}

// desiredArtifact returns the artifact for the status of the ExternalArtifact. Its revision has the
// form of Flux: a version for users, and a digest that changes with the content.
func (p *Publisher) desiredArtifact(key types.NamespacedName, o *Publication,
	state *State) (*fluxmeta.Artifact, error) {
	path, err := p.Storage.PathOf(key, state.packed.Digest)
	if err != nil {
		return nil, err
	}
	return &fluxmeta.Artifact{Path: path, URL: p.Storage.URL(path), Revision: o.Version + "@" + state.packed.Digest,
		Digest:         state.packed.Digest,
		LastUpdateTime: metav1.NewTime(p.Clock.Now()), Size: ptr.To(state.packed.Size), Metadata: metadata(o)}, nil
}

// write sends the required writes to the API server.
func (p *Publisher) write(ctx context.Context, o *Publication, have *sourcev1.ExternalArtifact, want *fluxmeta.Artifact,
	state *State) error {
	ref := &fluxmeta.NamespacedObjectKindReference{APIVersion: o.Kind.GroupVersion().String(), Kind: o.Kind.Kind,
		Name: o.Owner.GetName(), Namespace: o.Owner.GetNamespace()}
	w := decideWrites(have, ref, want)
	switch {
	case w.create:
		have = &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: o.Owner.GetNamespace(),
			Name: o.Owner.GetName(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name,
				UID: o.Owner.GetUID(), Controller: ptr.To(true)}}},
			Spec: sourcev1.ExternalArtifactSpec{SourceRef: ref}}
		err := p.Client.Create(ctx, have, client.FieldOwner(p.FieldOwner))
		if apierrors.IsAlreadyExists(err) { // the cache lags behind
			have = &sourcev1.ExternalArtifact{}
			if err := p.Direct.Get(ctx, client.ObjectKeyFromObject(o.Owner), have); err != nil {
				return err
			}
			if err := checkOwner(have, o.Owner); err != nil {
				return err
			}
			return p.write(ctx, o, have, want, state)
		}
		if err != nil {
			return err
		}
	case w.spec:
		if err := p.patch(ctx, have, "spec", map[string]any{"sourceRef": ref}); err != nil {
			return err
		}
	}
	if w.status {
		status := sourcev1.ExternalArtifactStatus{Artifact: want, Conditions: have.Status.Conditions}
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: fluxmeta.ReadyCondition,
			Status: metav1.ConditionTrue, Reason: fluxmeta.SucceededReason,
			Message:            fmt.Sprintf("stored artifact for revision '%s'", want.Revision),
			ObservedGeneration: have.Generation, LastTransitionTime: metav1.NewTime(p.Clock.Now())})
		if err := p.patch(ctx, have, "status", status); err != nil {
			return err
		}
	}
	state.written = have
	return nil
}

// patch sends a merge patch of the spec or the status with the UID of the object as precondition,
// and updates have from the response.
func (p *Publisher) patch(ctx context.Context, have *sourcev1.ExternalArtifact, field string, value any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": have.UID}, field: value})
	if err != nil {
		return err
	}
	response := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: have.Namespace, Name: have.Name}}
	patch, owner := client.RawPatch(types.MergePatchType, body), client.FieldOwner(p.FieldOwner)
	if field == "status" {
		err = p.Client.Status().Patch(ctx, response, patch, owner)
	} else {
		err = p.Client.Patch(ctx, response, patch, owner)
	}
	if err != nil {
		return err
	}
	*have = *response
	return nil
}

// secretsKey is the metadata key that marks an artifact that may contain Secrets.
const secretsKey = "apps.ksctl.com/secrets"

// WithdrawSecrets is Withdraw if the published artifact may contain Secrets. It is for an owner
// that no longer publishes Secrets. An artifact without Secrets stays.
func (p *Publisher) WithdrawSecrets(ctx context.Context, owner client.Object, state *State) error {
	if err := p.checkServed(ctx); err != nil {
		if _, notServed := errors.AsType[*sourceref.Error](err); notServed {
			return nil // no object exists
		}
		return err
	}
	key := client.ObjectKeyFromObject(owner)
	have, err := p.read(ctx, key, state)
	if err != nil {
		return fmt.Errorf("reading ExternalArtifact %s: %w", key, err)
	}
	if have == nil || !metav1.IsControlledBy(have, owner) || !mayContainSecrets(have) {
		return nil
	}
	return p.Withdraw(ctx, owner, state)
}

// metadata returns the metadata of the artifact of a publication.
func metadata(o *Publication) map[string]string {
	mode := "None" // set explicitly: a merge patch does not remove the key
	if o.MayContainSecrets {
		mode = string(appsv1.SecretsInclude)
	}
	return map[string]string{originKey: o.Origin, secretsKey: mode}
}

// mayContainSecrets reports whether the artifact of an ExternalArtifact may contain Secrets.
func mayContainSecrets(have *sourcev1.ExternalArtifact) bool {
	return have.Status.Artifact != nil && have.Status.Artifact.Metadata[secretsKey] == string(appsv1.SecretsInclude)
}
