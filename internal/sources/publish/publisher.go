package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/internal/sources/storage"
	"github.com/ksctl/gitops/stacks/artifact"
)

// originKey is the metadata of an artifact that says which revision of a source it
// was made from. Flux' controllers tell it in their status and events.
const originKey = "org.opencontainers.image.revision"

// readWithin bounds a read of the cache, which has no answer while it can't list a kind.
const readWithin = 10 * time.Second

// Publisher writes ExternalArtifacts, and keeps and serves what they offer.
type Publisher struct {
	// Client reads from the cache and writes to the API server; Direct asks the API server.
	Client client.Client
	Direct client.Reader
	// Serves is true when the cluster serves a kind.
	Serves func(context.Context, schema.GroupKind) (bool, error)
	// Storage has the artifacts, within Limits.
	Storage *storage.Space
	Limits  artifact.Limits
	// FieldOwner of what is written.
	FieldOwner string
	Clock      clock.PassiveClock
}

// Offer is what an owner publishes.
type Offer struct {
	// Owner, whose kind is Kind.
	Owner client.Object
	Kind  schema.GroupVersionKind
	// Version of what is offered, as people call it; Origin is the revision of the
	// source that it was made from.
	Version, Origin string
	// Secrets is true when they may be among the files.
	Secrets bool
	// Content identifies the files: while it stays, they are not asked for again.
	Content string
	Files   func(context.Context) (fs.FS, error)
}

// Kept is what a process remembers of what an owner published.
type Kept struct {
	content string
	packed  artifact.Packed
	// written is the ExternalArtifact as it was written last: the cache may lag.
	written *sourcev1.ExternalArtifact
}

// Publish has the ExternalArtifact of an owner offer what it should, and returns the
// revision. It asks nothing of the API server, and packs nothing, where it does so already.
func (p *Publisher) Publish(ctx context.Context, o *Offer, kept *Kept) (revision string, err error) {
	if err := p.served(ctx); err != nil {
		return "", err
	}
	key := client.ObjectKeyFromObject(o.Owner)
	have, err := p.read(ctx, key, kept)
	if err != nil {
		return "", fmt.Errorf("reading ExternalArtifact %s: %w", key, err)
	}
	if err := foreign(have, o.Owner); err != nil {
		return "", err
	}
	if err := p.store(ctx, key, o, have, kept); err != nil {
		return "", err
	}
	want, err := p.artifact(key, o, kept)
	if err != nil {
		return "", err
	}
	if err := p.write(ctx, o, have, want, kept); err != nil {
		return "", fmt.Errorf("writing ExternalArtifact %s: %w", key, err)
	}
	return want.Revision, nil
}

// Withdraw removes the ExternalArtifact of an owner, if it is its own, and what it offered.
func (p *Publisher) Withdraw(ctx context.Context, owner client.Object, kept *Kept) error {
	key := client.ObjectKeyFromObject(owner)
	var gone *sourceref.Error // with the kind everything of it went
	if err := p.served(ctx); err == nil {
		if err := p.remove(ctx, owner); err != nil {
			return fmt.Errorf("removing ExternalArtifact %s: %w", key, err)
		}
	} else if !errors.As(err, &gone) {
		return err
	}
	*kept = Kept{}
	return p.Storage.Remove(key)
}

func (p *Publisher) remove(ctx context.Context, owner client.Object) error {
	have := &sourcev1.ExternalArtifact{}
	err := p.Direct.Get(ctx, client.ObjectKeyFromObject(owner), have)
	if err == nil && metav1.IsControlledBy(have, owner) {
		err = p.Client.Delete(ctx, have, client.Preconditions{UID: &have.UID})
	}
	return client.IgnoreNotFound(err)
}

// served is a *sourceref.Error when the cluster does not serve ExternalArtifacts.
func (p *Publisher) served(ctx context.Context) error {
	gvk := sourcev1.GroupVersion.WithKind(sourcev1.ExternalArtifactKind)
	serves, err := p.Serves(ctx, gvk.GroupKind())
	if err != nil {
		return fmt.Errorf("whether this cluster serves %s is not known: %w", gvk.Kind, err)
	}
	if !serves {
		return &sourceref.Error{Reason: sourceref.NotServed, Message: fmt.Sprintf("this cluster does not serve %s in %s: install Flux's source-controller, or its "+
			"CustomResourceDefinition, in a version that has it", gvk.Kind, gvk.GroupVersion())}
	}
	return nil
}

// read finds the ExternalArtifact: as it was written last where the cache is behind.
func (p *Publisher) read(ctx context.Context, key types.NamespacedName, kept *Kept) (*sourcev1.ExternalArtifact, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	have := &sourcev1.ExternalArtifact{}
	err := p.Client.Get(ctx, key, have)
	if apierrors.IsNotFound(err) && kept.written != nil {
		err = p.Direct.Get(ctx, key, have) // deleted, or not there yet
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if w := kept.written; w != nil && w.UID == have.UID && newer(w.ResourceVersion, have.ResourceVersion) {
		return w.DeepCopy(), nil
	}
	return have, nil
}

// newer compares resourceVersions of one object as the numbers that they are.
func newer(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x > y
}

// store keeps the files of an offer, unless they are kept already. The artifact
// before stays, for whoever is about to download it, but for Secrets that were taken back.
func (p *Publisher) store(ctx context.Context, key types.NamespacedName, o *Offer, have *sourcev1.ExternalArtifact, kept *Kept) error {
	if kept.content == o.Content {
		if there, err := p.Storage.Has(key, kept.packed.Digest); there || err != nil {
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
	if have != nil && have.Status.Artifact != nil && (o.Secrets || !offersSecrets(have)) {
		keep = append(keep, have.Status.Artifact.Digest)
	}
	if err := p.Storage.Keep(key, keep...); err != nil {
		return err
	}
	kept.content, kept.packed = o.Content, packed
	return nil
}

// artifact is what an ExternalArtifact has to say. Its revision has the form of
// Flux: a version for people, and a digest that changes with the content.
func (p *Publisher) artifact(key types.NamespacedName, o *Offer, kept *Kept) (*fluxmeta.Artifact, error) {
	path, err := p.Storage.PathOf(key, kept.packed.Digest)
	if err != nil {
		return nil, err
	}
	return &fluxmeta.Artifact{Path: path, URL: p.Storage.URL(path), Revision: o.Version + "@" + kept.packed.Digest, Digest: kept.packed.Digest,
		LastUpdateTime: metav1.NewTime(p.Clock.Now()), Size: ptr.To(kept.packed.Size), Metadata: metadata(o)}, nil
}

// write does what it takes until the API server has what is wanted.
func (p *Publisher) write(ctx context.Context, o *Offer, have *sourcev1.ExternalArtifact, want *fluxmeta.Artifact, kept *Kept) error {
	ref := &fluxmeta.NamespacedObjectKindReference{APIVersion: o.Kind.GroupVersion().String(), Kind: o.Kind.Kind, Name: o.Owner.GetName(), Namespace: o.Owner.GetNamespace()}
	w := decide(have, ref, want)
	switch {
	case w.create:
		have = &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: o.Owner.GetNamespace(), Name: o.Owner.GetName(),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: o.Owner.GetUID(), Controller: ptr.To(true)}}},
			Spec: sourcev1.ExternalArtifactSpec{SourceRef: ref}}
		err := p.Client.Create(ctx, have, client.FieldOwner(p.FieldOwner))
		if apierrors.IsAlreadyExists(err) { // the cache is behind
			return p.again(ctx, o, want, kept)
		}
		if err != nil {
			return err
		}
	case w.spec:
		err := p.patch(ctx, have, map[string]any{"spec": map[string]any{"sourceRef": ref}}, func(ctx context.Context, o client.Object, patch client.Patch) error {
			return p.Client.Patch(ctx, o, patch, client.FieldOwner(p.FieldOwner))
		})
		if err != nil {
			return err
		}
	}
	if w.status {
		status := sourcev1.ExternalArtifactStatus{Artifact: want, Conditions: have.Status.Conditions}
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: fluxmeta.ReadyCondition, Status: metav1.ConditionTrue, Reason: fluxmeta.SucceededReason,
			Message: fmt.Sprintf("stored artifact for revision '%s'", want.Revision), ObservedGeneration: have.Generation, LastTransitionTime: metav1.NewTime(p.Clock.Now())})
		err := p.patch(ctx, have, map[string]any{"status": status}, func(ctx context.Context, o client.Object, patch client.Patch) error {
			return p.Client.Status().Patch(ctx, o, patch, client.FieldOwner(p.FieldOwner))
		})
		if err != nil {
			return err
		}
	}
	kept.written = have
	return nil
}

// again is write for an ExternalArtifact that only the API server knows yet.
func (p *Publisher) again(ctx context.Context, o *Offer, want *fluxmeta.Artifact, kept *Kept) error {
	have := &sourcev1.ExternalArtifact{}
	if err := p.Direct.Get(ctx, client.ObjectKeyFromObject(o.Owner), have); err != nil {
		return err
	}
	if err := foreign(have, o.Owner); err != nil {
		return err
	}
	return p.write(ctx, o, have, want, kept)
}

// patch sends a merge patch for exactly that object, and takes over the answer.
func (p *Publisher) patch(ctx context.Context, have *sourcev1.ExternalArtifact, fields map[string]any,
	send func(context.Context, client.Object, client.Patch) error,
) error {
	fields["metadata"] = map[string]any{"uid": have.UID}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	answer := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: have.Namespace, Name: have.Name}}
	if err := send(ctx, answer, client.RawPatch(types.MergePatchType, body)); err != nil {
		return err
	}
	*have = *answer
	return nil
}
