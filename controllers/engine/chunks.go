package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// InventoryOfLabel is on KsctlInventory objects; its value is a hash of their owner.
const InventoryOfLabel = "ksctl.com/inventory-of"

// ChunkStore keeps the parts of inventories that do not fit a status, in
// KsctlInventory objects beside their owner. They have no owner reference:
// what they list must not be forgotten with the owner.
type ChunkStore struct {
	// Client writes. Direct is asked for the chunks of an owner that has some, or
	// had in this process: a cache can be behind the writes of the process before,
	// or our own. Reader, which may be a cache, is asked for those of others: what
	// the status does not name, it still says itself.
	Client client.Client
	Reader client.Reader
	Direct client.Reader

	mu       sync.Mutex
	versions map[client.ObjectKey]string
	// known are the owners that were loaded or saved before.
	known map[OwnerKey]bool
}

// ChunkConflictError says that somebody else changed a part of an inventory.
// What is in memory is no better than what is stored: load it again.
type ChunkConflictError struct{ Err error }

func (e *ChunkConflictError) Error() string {
	return "changed by another writer: " + e.Err.Error()
}

// Unwrap returns the API server's answer.
func (e *ChunkConflictError) Unwrap() error { return e.Err }

func ownerHash(key OwnerKey) string {
	sum := sha256.Sum256([]byte(key.Kind + "/" + key.Namespace + "/" + key.Name))
	return hex.EncodeToString(sum[:8])
}

// Load reads the chunks of an owner, also those that its status does not name
// yet because a crash came in between.
func (s *ChunkStore) Load(ctx context.Context, key OwnerKey, status *appsv1.Inventory) ([]appsv1.KsctlInventory, error) {
	var list appsv1.KsctlInventoryList
	named := status != nil && len(status.Chunks) > 0
	err := s.reader(key, named).List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{InventoryOfLabel: ownerHash(key)})
	if err != nil {
		return nil, fmt.Errorf("inventory of %s: %w", key.People(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list.Items {
		s.remember(&list.Items[i])
	}
	return list.Items, nil
}

// Open returns the inventory of an owner as its status and its chunks have it.
func (s *ChunkStore) Open(ctx context.Context, key OwnerKey, status *appsv1.Inventory) (*Inventory, error) {
	chunks, err := s.Load(ctx, key, status)
	if err != nil {
		return nil, err
	}
	return NewInventory(status, chunks), nil
}

// Record writes the chunks of an inventory that needs some, and returns what is to
// stand in its owner's status.
func (s *ChunkStore) Record(ctx context.Context, key OwnerKey, inv *Inventory) (*appsv1.Inventory, error) {
	if inv.NeedsChunks() {
		if err := s.Save(ctx, key, inv); err != nil {
			return nil, err
		}
	}
	return inv.Status(), nil
}

// reader is what to ask for the chunks of an owner.
func (s *ChunkStore) reader(key OwnerKey, named bool) client.Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if named || s.known[key] {
		return s.Direct
	}
	if s.known == nil {
		s.known = map[OwnerKey]bool{}
	}
	s.known[key] = true
	return s.Reader
}

// Save writes the chunks that differ from what was last written. The status is
// to be written after it: until then it overrides the chunks with what it said
// before, which costs a request, nothing else.
func (s *ChunkStore) Save(ctx context.Context, key OwnerKey, inv *Inventory) error {
	hash := ownerHash(key)
	prefix := strings.TrimRight(fmt.Sprintf("%.200s", key.Name), "-.") + "-" + hash
	name := func(n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
	return inv.Save(name, func(c Chunk) error {
		if err := s.save(ctx, key, hash, c); err != nil {
			return fmt.Errorf("inventory %s of %s: %w", c.Name, key.People(), err)
		}
		return nil
	})
}

func (s *ChunkStore) save(ctx context.Context, key OwnerKey, hash string, c Chunk) error {
	name := client.ObjectKey{Namespace: key.Namespace, Name: c.Name}
	s.mu.Lock()
	version, exists := s.versions[name]
	s.mu.Unlock()
	obj := &appsv1.KsctlInventory{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, ResourceVersion: version,
			Labels: map[string]string{InventoryOfLabel: hash}},
		Owner:   appsv1.InventoryOwner{Group: appsv1.GroupVersion.Group, Kind: key.Kind, Name: key.Name},
		Entries: c.Entries,
	}
	var err error
	switch {
	case len(c.Entries) == 0 && !exists:
		return nil
	case len(c.Entries) == 0:
		err = client.IgnoreNotFound(s.Client.Delete(ctx, obj, client.Preconditions{ResourceVersion: &version}))
	case exists:
		if err = s.Client.Update(ctx, obj); !apierrors.IsNotFound(err) {
			break
		}
		obj.ResourceVersion = "" // deleted by somebody: what it listed is still ours
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
		s.remember(obj)
	}
	return err
}

// remember is called with the lock held.
func (s *ChunkStore) remember(c *appsv1.KsctlInventory) {
	if s.versions == nil {
		s.versions = map[client.ObjectKey]string{}
	}
	s.versions[client.ObjectKeyFromObject(c)] = c.ResourceVersion
}
