package engine

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/internal/golden"
)

// goldenEntry is an entry with every field set.
func goldenEntry(n int) appsv1.InventoryEntry {
	e := numbered(n)
	e.UID, e.State = "9d8c1e54-0b4e-4b39-8f1b-6f0ab0a5b001", appsv1.EntryApplied
	e.Wave, e.Leaving, e.PreRemove, e.Hash, e.Baseline = 2, true, 1, base, base+"r"
	return e
}

func goldenRead[T any](t *testing.T, name string) *T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict(golden.Read(t, name), &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

// The status has all entries; with a chunk none; and later the ones that differ from the chunk.
func TestGoldenInventory(t *testing.T) {
	r := newChunkTest(t)
	inv := r.load(nil)
	wanted := map[string]bool{}
	for i := range 4 {
		inv.Put(goldenEntry(i))
		wanted[goldenEntry(i).ID] = i > 0
	}
	golden.JSON(t, "inventory-unsettled.json", inv.Status())
	inv.MarkSettled(wanted)
	golden.JSON(t, "inventory.json", inv.Status())

	r.save(inv, "create 0")
	chunk := r.stored()[0]
	chunk.TypeMeta, chunk.ResourceVersion = metav1.TypeMeta{}, ""
	golden.JSON(t, "chunk.json", &chunk)
	golden.Complete(t, chunk.Owner)
	retainedAt := metav1.NewMicroTime(time.Date(2026, 5, 1, 12, 0, 0, 123456000, time.UTC))
	chunk.Entries[0].RetainedAt = &retainedAt // inventory-retained.json shows it
	golden.Complete(t, chunk.Entries)
	golden.JSON(t, "inventory-chunk.json", inv.Status())

	changed := goldenEntry(1)
	changed.State = appsv1.EntryAdopted
	inv.Put(changed)
	inv.Put(numbered(9))
	inv.Remove(goldenEntry(2).ID)
	journal := inv.Status()
	golden.JSON(t, "inventory-journal.json", journal)
	journal.Entries[0].RetainedAt = &retainedAt
	golden.Complete(t, journal)

	entry := goldenEntry(0)
	entry.RetainedAt = &retainedAt
	retained := plan.NewInventory(&appsv1.Inventory{Entries: []appsv1.InventoryEntry{entry, goldenEntry(1)}}, nil)
	retained.MarkSettled(wanted)
	golden.JSON(t, "inventory-retained.json", retained.Status())
}

// A new process finds the chunk by its label and continues the journal.
func TestGoldenInventoryIsRead(t *testing.T) {
	r := newChunkTest(t)
	if err := r.server.Create(t.Context(), goldenRead[appsv1.KsctlInventory](t, "chunk.json")); err != nil {
		t.Fatal(err)
	}
	journal := goldenRead[appsv1.Inventory](t, "inventory-journal.json")
	inv := r.load(journal)
	changed := goldenEntry(1)
	changed.State = appsv1.EntryAdopted
	want := []appsv1.InventoryEntry{goldenEntry(0), changed, goldenEntry(3), numbered(9)}
	if got := inv.Entries(); !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v", got)
	}
	if got := inv.Status(); !reflect.DeepEqual(got, journal) {
		t.Errorf("a new process would write %+v", got)
	}
	r.save(inv, "update 0")
}

// The settled number of entries is the base of the next change, if it desires other ids.
func TestGoldenInventoryIsSettled(t *testing.T) {
	stored := goldenRead[appsv1.Inventory](t, "inventory.json")
	inv := plan.NewInventory(stored, nil)
	if got := inv.Status(); !reflect.DeepEqual(got, stored) {
		t.Errorf("a new process would write %+v", got)
	}
	inv.Put(goldenEntry(8))
	inv.Put(numbered(9))
	wanted := map[string]bool{}
	for i := range 4 {
		wanted[goldenEntry(i).ID] = i > 0
	}
	if known, unknown := inv.CountBefore(wanted), inv.CountBefore(nil); known != 5 || unknown != 4 {
		t.Errorf("%d entries before with the ids, %d without", known, unknown)
	}
}

func TestGoldenChunks(t *testing.T) {
	var out bytes.Buffer
	r := newChunkTest(t)
	inv := r.load(nil)
	putNumbered(inv, 0, 1500)
	r.save(inv, "create 0", "create 1")
	for _, c := range r.stored() {
		fmt.Fprintf(&out, "1500 entries: %s: %d from %s to %s\n", c.Name, len(c.Entries), c.Entries[0].ID,
			c.Entries[len(c.Entries)-1].ID)
	}
	long := strings.Repeat("a", 198)
	for _, name := range []string{"a", long + "aa", long + "aaaaa", long + "a." + long[:50], long + "--" + long[:50]} {
		r := newChunkTest(t)
		key := me
		key.Name = name
		inv := plan.NewInventory(nil, nil)
		putNumbered(inv, 0, 1)
		if err := r.SaveChunks(t.Context(), key, inv); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s: %s\n", name, r.stored()[0].Name)
	}
	golden.Equal(t, "chunks.txt", out.Bytes())
}

func TestGoldenDigests(t *testing.T) {
	var out bytes.Buffer
	line := func(digest, format string, args ...any) {
		fmt.Fprintf(&out, "%s: %s\n", fmt.Sprintf(format, args...), digest)
	}
	type entries = []appsv1.InventoryEntry
	line(plan.Digest(nil), "no entries")
	line(plan.Digest(entries{numbered(1)}), "an entry without uid")
	line(plan.Digest(entries{goldenEntry(1)}), "an entry with every field")
	line(plan.Digest(entries{goldenEntry(1), goldenEntry(2)}), "two entries")
	line(plan.Digest(entries{goldenEntry(2), goldenEntry(1)}), "two entries in another order")

	remote, remove := me, me
	remote.Cluster, remove.Kind = "team.eu", "KsctlRemove"
	for _, key := range []plan.OwnerKey{{}, me, remote, remove} {
		line(ownerHash(key), "chunks of %s", key)
		line(usedByAnnotation(key), "user %s", key)
		if again, ok := plan.ParseOwnerKey(key.String()); !ok || again != key {
			t.Errorf("%s is parsed as %+v", key, again)
		}
	}

	line(hashContent("hash", "", nil), "the hash of a manifest alone")
	line(hashContent("hash", "object.ok", nil), "a hash with an expression")
	line(hashContent("hash", "", []string{"/spec/replicas"}), "a hash with an ignored path")
	line(hashContent("hash", "object.ok && 'a<b' != \"\"", []string{"/data/a~1b", "/spec/replicas"}),
		"a hash with both")

	inv := plan.NewInventory(nil, nil)
	putNumbered(inv, 0, 3)
	for _, wanted := range [][]int{nil, {1}, {1, 2}, {2, 1}, {7}} {
		ids := map[string]bool{}
		for _, n := range wanted {
			ids[numbered(n).ID] = true
		}
		inv.MarkSettled(ids)
		line(inv.Status().SettledIDs, "settled with entries 0 to 2, of which %v are wanted", wanted)
	}
	golden.Equal(t, "digests.txt", out.Bytes())
}
