package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

// InventoryOfLabel is on KsctlInventory objects; its value is a hash of their owner.
const InventoryOfLabel = "ksctl.com/inventory-of"

// ChunkStore stores inventories that are too large for a status in chunks: KsctlInventory objects
// in the namespace of the owner. Chunks have no owner reference: the garbage collector must not
// delete them with the owner while the objects that they list exist.
type ChunkStore struct {
	// Client writes. APIReader reads the chunks of an owner whose status names some, or that this
	// process has loaded before: a cache can be behind the writes of the previous process, or of
	// this one. Reader, which may be a cache, reads those of other owners: as long as the status
	// names no chunks, it contains all entries itself.
	Client    client.Client
	Reader    client.Reader
	APIReader client.Reader

	mu       sync.Mutex
	versions map[client.ObjectKey]string
	// loaded are the owners whose chunks were loaded before.
	loaded map[plan.OwnerKey]bool
}

// ChunkConflictError is returned when another client changed a chunk. The inventory in memory may
// be out of date: load it again.
type ChunkConflictError struct{ Err error }

func (e *ChunkConflictError) Error() string {
	return "changed by another writer: " + e.Err.Error()
}

// Unwrap returns the error of the API server.
func (e *ChunkConflictError) Unwrap() error { return e.Err }

// ownerHash returns the value of InventoryOfLabel for an owner.
func ownerHash(key plan.OwnerKey) string {
	sum := sha256.Sum256([]byte(key.Kind + "/" + key.Namespace + "/" + key.Name))
	return hex.EncodeToString(sum[:8])
}

// LoadChunks reads the chunks of an owner. They include chunks that its status does not name
// because of a crash before the status was written.
func (s *ChunkStore) LoadChunks(ctx context.Context, key plan.OwnerKey,
	status *appsv1.Inventory) ([]appsv1.KsctlInventory, error) {
	var list appsv1.KsctlInventoryList
	hasChunks := status != nil && len(status.Chunks) > 0
	err := s.reader(key, hasChunks).List(ctx, &list, client.InNamespace(key.Namespace),
		client.MatchingLabels{InventoryOfLabel: ownerHash(key)})
	if err != nil {
		return nil, fmt.Errorf("listing the inventory chunks of %s: %w", key.DisplayName(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list.Items {
		s.rememberVersion(&list.Items[i])
	}
	return list.Items, nil
}

// LoadInventory returns the inventory of an owner from its status and its chunks.
func (s *ChunkStore) LoadInventory(ctx context.Context, key plan.OwnerKey,
	status *appsv1.Inventory) (*plan.Inventory, error) {
	chunks, err := s.LoadChunks(ctx, key, status)
	if err != nil {
		return nil, err
	}
	return plan.NewInventory(status, chunks), nil
}

// SaveInventory writes the chunks of an inventory if it needs some, and returns the inventory to
// write into the status of the owner.
func (s *ChunkStore) SaveInventory(ctx context.Context, key plan.OwnerKey,
	inv *plan.Inventory) (*appsv1.Inventory, error) {
	if inv.NeedsChunks() {
		if err := s.SaveChunks(ctx, key, inv); err != nil {
			return nil, err
		}
	}
	return inv.Status(), nil
}

// reader returns the reader for the chunks of an owner, and records the owner as loaded.
func (s *ChunkStore) reader(key plan.OwnerKey, hasChunks bool) client.Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hasChunks || s.loaded[key] {
		return s.APIReader
	}
	if s.loaded == nil {
		s.loaded = map[plan.OwnerKey]bool{}
	}
	s.loaded[key] = true
	return s.Reader
}

// maxParallelWrites is the maximum number of chunks that are written concurrently.
const maxParallelWrites = 4

// SaveChunks writes the chunks that have changed since they were last written. If a write fails,
// the inventory records which chunks were written nevertheless. Write the status after it: until
// then its previous entries override the chunks, which costs a request, but is correct.
func (s *ChunkStore) SaveChunks(ctx context.Context, key plan.OwnerKey, inv *plan.Inventory) error {
	hash := ownerHash(key)
	prefix := strings.TrimRight(fmt.Sprintf("%.200s", key.Name), "-.") + "-" + hash
	name := func(n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
	changed := slices.DeleteFunc(inv.Layout(name), func(c plan.Chunk) bool { return !inv.Dirty(c) })
	errs := make([]error, len(changed))
	var g errgroup.Group
	g.SetLimit(maxParallelWrites)
	for i, c := range changed {
		g.Go(func() error {
			if err := s.saveChunk(ctx, key, hash, c); err != nil {
				errs[i] = fmt.Errorf("writing inventory chunk %s of %s: %w", c.Name, key.DisplayName(), err)
			}
			return nil
		})
	}
	_ = g.Wait() // each has an error of its own
	for i, c := range changed {
		if errs[i] == nil {
			inv.MarkWritten(c)
		}
	}
	return cmp.Or(errs...)
}

// saveChunk creates, updates or deletes one chunk. A chunk without entries is deleted.
func (s *ChunkStore) saveChunk(ctx context.Context, key plan.OwnerKey, hash string, c plan.Chunk) error {
	name := client.ObjectKey{Namespace: key.Namespace, Name: c.Name}
	s.mu.Lock()
	version, exists := s.versions[name]
	s.mu.Unlock()
	obj := &appsv1.KsctlInventory{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, ResourceVersion: version,
			Labels: map[string]string{InventoryOfLabel: hash}, Finalizers: []string{appsv1.Finalizer}},
		Owner:   appsv1.InventoryOwner{Group: appsv1.GroupVersion.Group, Kind: key.Kind, Name: key.Name},
		Entries: c.Entries,
	}
	var err error
	switch {
	case len(c.Entries) == 0 && !exists:
		return nil
	case len(c.Entries) == 0:
		err = s.deleteChunk(ctx, obj)
	case exists:
		if err = s.Client.Update(ctx, obj); !apierrors.IsNotFound(err) {
			break
		}
		obj.ResourceVersion = "" // deleted by another client: its entries are still ours
		fallthrough
	default:
		err = s.Client.Create(ctx, obj)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &ChunkConflictError{Err: err}
	case err == nil && len(c.Entries) == 0:
		delete(s.versions, name)
	case err == nil:
		s.rememberVersion(obj)
	}
	return err
}

// deleteChunk deletes a chunk, and then removes its finalizer: while objects are left, the chunk
// stays even when its namespace is deleted.
func (s *ChunkStore) deleteChunk(ctx context.Context, obj *appsv1.KsctlInventory) error {
	err := s.Client.Delete(ctx, obj, client.Preconditions{ResourceVersion: &obj.ResourceVersion})
	if err == nil {
		err = s.Client.Patch(ctx, obj,
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	}
	return client.IgnoreNotFound(err)
}

// rememberVersion records the resourceVersion of a chunk. The caller holds the lock.
func (s *ChunkStore) rememberVersion(c *appsv1.KsctlInventory) {
	if s.versions == nil {
		s.versions = map[client.ObjectKey]string{}
	}
	s.versions[client.ObjectKeyFromObject(c)] = c.ResourceVersion
}
