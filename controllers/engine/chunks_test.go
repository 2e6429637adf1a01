package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
)

// chunkTest is a fake API server, and the chunk store of a process.
type chunkTest struct {
	*ChunkStore
	t      *testing.T
	server client.WithWatch
	// mu guards the fields below: chunks are written concurrently.
	mu     sync.Mutex
	writes []string
	// before is called before each write with what it is, as writes has it; its error is that of
	// the write.
	before func(what string) error
}

func newChunkTest(t *testing.T) *chunkTest {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &chunkTest{t: t}
	write := func(verb string, o client.Object, do func() error) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		what := verb + " " + o.GetName()[len(o.GetName())-1:]
		r.writes = append(r.writes, what)
		if r.before != nil {
			if err := r.before(what); err != nil {
				return err
			}
		}
		return do()
	}
	r.server = fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return write("create", o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write("update", o, func() error { return c.Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write("delete", o, func() error { return c.Delete(ctx, o, opts...) })
		},
	}).Build()
	r.restart()
	return r
}

// restart replaces the store by that of a new process.
func (r *chunkTest) restart() {
	r.ChunkStore = &ChunkStore{Client: r.server, Reader: r.server, APIReader: r.server}
}

func (r *chunkTest) load(status *appsv1.Inventory) *plan.Inventory {
	r.t.Helper()
	chunks, err := r.LoadChunks(r.t.Context(), me, status)
	if err != nil {
		r.t.Fatal(err)
	}
	return plan.NewInventory(status, chunks)
}

// save saves an inventory, and expects these writes in any order.
func (r *chunkTest) save(inv *plan.Inventory, want ...string) {
	r.t.Helper()
	r.writes = nil
	if err := r.SaveChunks(r.t.Context(), me, inv); err != nil {
		r.t.Fatal(err)
	}
	slices.SortFunc(r.writes, func(a, b string) int { return strings.Compare(a[len(a)-1:], b[len(b)-1:]) })
	if !slices.Equal(r.writes, want) {
		r.t.Errorf("wrote %v, want %v", r.writes, want)
	}
}

// expectConflict saves an inventory, and expects a conflict with another client.
func (r *chunkTest) expectConflict(inv *plan.Inventory) {
	r.t.Helper()
	err := r.SaveChunks(r.t.Context(), me, inv)
	var conflict *ChunkConflictError
	if !errors.As(err, &conflict) {
		r.t.Fatalf("got %v, want a conflict", err)
	}
	if !strings.Contains(err.Error(), me.DisplayName()) {
		r.t.Errorf("%v: the error does not name the owner", err)
	}
}

func (r *chunkTest) stored() []appsv1.KsctlInventory {
	r.t.Helper()
	var list appsv1.KsctlInventoryList
	if err := r.server.List(r.t.Context(), &list); err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

// touch updates a chunk as another client.
func (r *chunkTest) touch(n int) {
	r.t.Helper()
	c := r.stored()[n]
	c.Annotations = map[string]string{"somebody": "else"}
	if err := r.server.Update(r.t.Context(), &c); err != nil {
		r.t.Fatal(err)
	}
}

func putNumbered(inv *plan.Inventory, from, to int) {
	for i := from; i < to; i++ {
		inv.Put(numbered(i))
	}
}

func TestChunkStore(t *testing.T) {
	r := newChunkTest(t)
	inv := r.load(nil)
	putNumbered(inv, 0, 1500)
	r.save(inv, "create 0", "create 1")
	r.save(inv)
	for _, c := range r.stored() {
		want := appsv1.InventoryOwner{Group: "apps.ksctl.com", Kind: me.Kind, Name: me.Name}
		if c.Namespace != me.Namespace || c.Owner != want || c.Labels[InventoryOfLabel] != ownerHash(me) ||
			len(c.OwnerReferences) != 0 {
			t.Errorf("%+v", c.ObjectMeta)
		}
	}
	e := numbered(1200)
	e.State = appsv1.EntryApplied
	inv.Put(e)
	r.save(inv, "update 1")

	r.restart()
	again := r.load(inv.Status())
	if !slices.Equal(again.Entries(), inv.Entries()) {
		t.Error("the loaded inventory differs")
	}
	r.save(again) // nothing to write
	for i := range 1000 {
		again.Remove(numbered(i).ID)
	}
	r.save(again, "delete 0")
	r.save(again)
	putNumbered(again, 0, 600)
	r.save(again, "create 0")
	for _, e := range again.Entries() {
		again.Remove(e.ID)
	}
	r.save(again, "delete 0", "delete 1")
	if left := r.stored(); len(left) > 0 {
		t.Errorf("%d are left", len(left))
	}
}

func TestChunksBelongToOneOwner(t *testing.T) {
	r := newChunkTest(t)
	inv := r.load(nil)
	putNumbered(inv, 0, 1001)
	r.save(inv, "create 0", "create 1")
	elsewhere := me
	elsewhere.Namespace = "another"
	for _, key := range []plan.OwnerKey{other, elsewhere, {Kind: "Other", Namespace: me.Namespace, Name: me.Name}} {
		chunks, err := r.LoadChunks(t.Context(), key, nil)
		if err != nil || len(chunks) > 0 {
			t.Errorf("%s gets %d chunks, %v", key, len(chunks), err)
		}
		theirs := plan.NewInventory(nil, nil)
		putNumbered(theirs, 0, 1)
		if err := r.SaveChunks(t.Context(), key, theirs); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if n := r.load(nil).Len(); n != 1001 {
		t.Errorf("%d entries are left", n)
	}
}

func TestChunkNamesAreValidAndUnique(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a", 252) + "b",
		strings.Repeat("a", 199) + "." + strings.Repeat("b", 50),
		strings.Repeat("a", 198) + "--" + strings.Repeat("b", 50), strings.Repeat("a.", 126)} {
		r := newChunkTest(t)
		key := me
		key.Name = name
		inv := plan.NewInventory(nil, nil)
		putNumbered(inv, 0, 1)
		if err := r.SaveChunks(t.Context(), key, inv); err != nil {
			t.Fatal(err)
		}
		got := r.stored()[0].Name
		if errs := validation.IsDNS1123Subdomain(got); errs != nil {
			t.Errorf("%s: %v", got, errs)
		}
		if seen[got] != "" {
			t.Errorf("%s and %s share %s", name, seen[got], got)
		}
		seen[got] = name
	}
}

// After another client has written a chunk, a save fails until the chunk is loaded again.
func TestChunkConflictOnWrite(t *testing.T) {
	for name, between := range map[string]func(*chunkTest){
		"update of a chunk that another client changed": func(r *chunkTest) { r.touch(0) },
		"create of an existing chunk": func(r *chunkTest) {
			r.versions = nil // as if the cache did not have it yet
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newChunkTest(t)
			inv := r.load(nil)
			putNumbered(inv, 0, 1001)
			r.save(inv, "create 0", "create 1")
			status := inv.Status()
			between(r)
			e := numbered(3)
			e.State = appsv1.EntryApplied
			inv.Put(e)
			r.expectConflict(inv)
			r.expectConflict(inv) // a retry without a load fails, too
			again := r.load(status)
			if again.Len() != 1001 {
				t.Fatalf("%d entries", again.Len())
			}
			again.Put(e)
			r.save(again, "update 0")
		})
	}
}

func TestChunkConflictOnDelete(t *testing.T) {
	r := newChunkTest(t)
	inv := r.load(nil)
	putNumbered(inv, 0, 1001)
	r.save(inv, "create 0", "create 1")
	status := inv.Status()
	r.touch(0)
	r.touch(1) // both, because they are written concurrently
	for _, e := range inv.Entries() {
		inv.Remove(e.ID)
	}
	r.expectConflict(inv)
	r.expectConflict(inv) // a retry fails, too
	again := r.load(status)
	if again.Len() != 1001 || len(r.stored()) != 2 {
		t.Errorf("%d entries in %d chunks", again.Len(), len(r.stored()))
	}
}

// When the namespace of an owner is deleted, its chunks stay until all of its objects are gone.
func TestDeletedChunksStayWithTheirEntries(t *testing.T) {
	r := newChunkTest(t)
	inv := r.load(nil)
	putNumbered(inv, 0, 1500)
	r.save(inv, "create 0", "create 1")
	for _, c := range r.stored() {
		if err := r.server.Delete(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.stored()); n != 2 {
		t.Fatalf("%d chunks are left", n)
	}
	inv = r.load(inv.Status())
	if inv.Len() != 1500 {
		t.Errorf("%d entries", inv.Len())
	}
	for i := range 1000 {
		inv.Remove(numbered(i).ID)
	}
	r.save(inv, "delete 0")
	for i := range 500 {
		inv.Remove(numbered(1000 + i).ID)
	}
	r.save(inv, "delete 1")
	if n := len(r.stored()); n != 0 {
		t.Errorf("%d chunks are left", n)
	}
}

func TestDeletedChunksAreRecreated(t *testing.T) {
	r := newChunkTest(t)
	inv := r.load(nil)
	putNumbered(inv, 0, 1500)
	r.save(inv, "create 0", "create 1")
	for _, c := range r.stored() {
		c.Finalizers = nil // somebody forces the deletion
		if err := errors.Join(r.server.Update(t.Context(), &c), r.server.Delete(t.Context(), &c)); err != nil {
			t.Fatal(err)
		}
	}
	e := numbered(3)
	e.State = appsv1.EntryApplied
	inv.Put(e)
	r.save(inv, "update 0", "create 0")
	if got := r.stored(); len(got) != 1 || len(got[0].Entries) != 1000 {
		t.Error("the chunk is not recreated with its entries")
	}
	for i := range 1500 {
		inv.Remove(numbered(i).ID)
	}
	r.save(inv, "delete 0", "delete 1") // one of them does not exist
}

// The cache of a new process may be behind the last writes of the previous process.
func TestChunksInStatusAreReadFromAPIServer(t *testing.T) {
	r := newChunkTest(t)
	inv := r.load(nil)
	putNumbered(inv, 0, 1001)
	r.save(inv, "create 0", "create 1")
	status := inv.Status()
	r.restart()
	r.Reader = fake.NewClientBuilder().WithScheme(r.server.Scheme()).Build()
	if n := r.load(status).Len(); n != 1001 {
		t.Errorf("loaded %d entries, want 1001", n)
	}
}
