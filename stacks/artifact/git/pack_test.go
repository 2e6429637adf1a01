package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/ksctl/gitops/stacks/artifact"
)

var tightLimits = Limits{PackBytes: 1 << 20, ObjectBytes: 64 << 10, Objects: 50,
	Tree: artifact.Limits{FileBytes: 32 << 10, UnpackedBytes: 32 << 10, Files: 30, Depth: 5}}

// packObject is an object of a test pack.
type packObject struct {
	kind         plumbing.ObjectType
	base         plumbing.Hash // of a delta
	baseDistance int           // distance in bytes to the base of an offset delta
	body         []byte
	// size overrides the length of body in the header.
	size int
}

func (p packObject) id() plumbing.Hash { return plumbing.ComputeHash(p.kind, p.body) }

func blobObject(s string) packObject { return packObject{kind: plumbing.BlobObject, body: []byte(s)} }

// treeObject returns a tree from pairs of an entry, such as "100644 name", and its object ID.
func treeObject(entries ...any) packObject {
	var b bytes.Buffer
	for i := 0; i < len(entries); i += 2 {
		h, ok := entries[i+1].(plumbing.Hash)
		if !ok {
			panic("an entry needs an object")
		}
		fmt.Fprintf(&b, "%s\x00%s", entries[i], h[:])
	}
	return packObject{kind: plumbing.TreeObject, body: b.Bytes()}
}

func commitObject(tree packObject) packObject {
	body := fmt.Sprintf("tree %s\nauthor a <a@example.com> 0 +0000\ncommitter a <a@example.com> 0 +0000\n\nm\n",
		tree.id())
	return packObject{kind: plumbing.CommitObject, body: []byte(body)}
}

func refDelta(base packObject, delta ...byte) packObject {
	return packObject{kind: plumbing.REFDeltaObject, base: base.id(), body: delta}
}

// encodePack encodes a pack. The header contains count, or the number of objects if count is 0.
func encodePack(count uint32, objects ...packObject) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	if count == 0 {
		count = uint32(len(objects))
	}
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, count})
	for _, o := range objects {
		size := uint64(len(o.body))
		if o.size != 0 {
			size = uint64(o.size)
		}
		first := byte(o.kind)<<4 | byte(size&0xf)
		for size >>= 4; size > 0; size >>= 7 {
			b.WriteByte(first | 0x80)
			first = byte(size & 0x7f)
		}
		b.WriteByte(first)
		switch o.kind {
		case plumbing.REFDeltaObject:
			b.Write(o.base[:])
		case plumbing.OFSDeltaObject:
			b.WriteByte(byte(o.baseDistance))
		}
		z := zlib.NewWriter(&b)
		_, _ = z.Write(o.body)
		_ = z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

func loadTestPack(ctx context.Context, t testing.TB, pack []byte, want plumbing.Hash, limits Limits) (*tree, error) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "pack")
	if err := os.WriteFile(name, pack, 0o600); err != nil {
		t.Fatal(err)
	}
	var tr *tree
	err := recoverPanic(func() error {
		st, err := loadPack(ctx, name, filepath.Join(dir, "objects"), limits.WithDefaults())
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = st.close() })
		if !st.has(want) {
			return newError(CommitNotFound, "not in the pack")
		}
		tr, _, err = readCommit(ctx, st, want, limits.WithDefaults().Tree)
		return err
	})
	return tr, err
}

func TestLoadPack(t *testing.T) {
	file := blobObject("content\n")
	good := treeObject("100644 file", file.id())
	head := commitObject(good)
	// 10 levels with 10 times the same subtree are 10^10 files in 11 objects.
	bomb := []packObject{file}
	level := treeObject("100644 file", file.id())
	for range 10 {
		bomb = append(bomb, level)
		var entries []any
		for j := range 10 {
			entries = append(entries, fmt.Sprintf("40000 %d", j), level.id())
		}
		level = treeObject(entries...)
	}
	bombHead := commitObject(level)
	bomb = append(bomb, level, bombHead)
	deep := treeObject("100644 file", file.id())
	deepPack := []packObject{file, deep}
	for range 20 {
		deep = treeObject("40000 d", deep.id())
		deepPack = append(deepPack, deep)
	}
	deepHead := commitObject(deep)

	in := func(entries ...any) []packObject {
		tr := treeObject(entries...)
		return []packObject{commitObject(tr), tr, file}
	}
	long := strings.Repeat("n", 256)
	cases := map[string]struct {
		pack []byte
		want plumbing.Hash
		is   Reason
	}{
		"valid":                    {encodePack(0, head, good, file), head.id(), ""},
		"duplicate object":         {encodePack(0, head, good, file, file), head.id(), ""},
		"no content":               {nil, head.id(), OperationFailed},
		"not a pack":               {[]byte("<html>"), head.id(), OperationFailed},
		"empty pack":               {encodePack(0), head.id(), CommitNotFound},
		"another commit":           {encodePack(0, file), head.id(), CommitNotFound},
		"blob instead of a commit": {encodePack(0, file), file.id(), CommitNotFound},
		"missing tree":             {encodePack(0, head, file), head.id(), OperationFailed},
		"missing blob":             {encodePack(0, head, good), head.id(), OperationFailed},
		"tree instead of a blob": {encodePack(0, append(in("100644 x", good.id()), good)...),
			in("100644 x", good.id())[0].id(), OperationFailed},
		"truncated":             {encodePack(0, head, good, file)[:80], head.id(), OperationFailed},
		"wrong checksum":        {append(encodePack(0, head, good, file), 1)[1:], head.id(), OperationFailed},
		"count of four billion": {encodePack(1<<32-1, head), head.id(), artifact.TooManyFiles},
		"count is too high":     {encodePack(9, head, good, file), head.id(), OperationFailed},
		"size is too low": {encodePack(0, head, good, packObject{kind: file.kind, body: file.body, size: 2}),
			head.id(), OperationFailed},
		"size is too high": {encodePack(0, head, good,
			packObject{kind: file.kind, body: file.body, size: 2000}), head.id(), OperationFailed},
		"size of terabytes": {encodePack(0, head, good,
			packObject{kind: file.kind, body: file.body, size: 1 << 42}), head.id(), artifact.TooLarge},
		"large object": {encodePack(0, head, good, blobObject(strings.Repeat("0", 32<<10+1))), head.id(),
			artifact.TooLarge},
		"large objects in total": {encodePack(0, head, blobObject(strings.Repeat("0", 30<<10)),
			blobObject(strings.Repeat("1", 30<<10)), blobObject(strings.Repeat("2", 30<<10))),
			head.id(), artifact.TooLarge},
		// A base of 8 bytes and a result of 2^35 bytes.
		"delta of gigabytes": {encodePack(0, head, good, file,
			refDelta(file, 8, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0x90, 8)), head.id(), artifact.TooLarge},
		// Bases of 8 bytes and results of 30 KiB each.
		"large deltas in total": {encodePack(0, head, good, file, refDelta(file, 8, 0x80, 0xf0, 1),
			refDelta(file, 8, 0x81, 0xf0, 1), refDelta(file, 8, 0x82, 0xf0, 1)),
			head.id(), artifact.TooLarge},
		"endless delta size": {encodePack(0, head, refDelta(head, bytes.Repeat([]byte{0xff}, 30)...)), head.id(),
			artifact.TooLarge},
		"empty delta": {encodePack(0, head, refDelta(head)), head.id(), artifact.TooLarge},
		"delta beyond its base": {encodePack(0, head, good, file, refDelta(file, 8, 8, 0x91, 100, 8)), head.id(),
			OperationFailed},
		"delta of an unknown base": {encodePack(0, head, refDelta(blobObject("unknown"), 7, 1, 0x90, 1)), head.id(),
			OperationFailed},
		"offset before the pack": {encodePack(0, head,
			packObject{kind: plumbing.OFSDeltaObject, baseDistance: 127, body: []byte{1, 1, 0x90, 1}}),
			head.id(), OperationFailed},
		"offset to itself": {encodePack(0, head,
			packObject{kind: plumbing.OFSDeltaObject, baseDistance: 0, body: []byte{1, 1, 0x90, 1}}), head.id(),
			OperationFailed},
		"unknown kind of object": {encodePack(0, head, packObject{kind: 5, body: []byte("x")}), head.id(),
			OperationFailed},
		"exponential subtrees": {encodePack(0, bomb...), bombHead.id(), artifact.TooDeep},
		"deep tree":            {encodePack(0, append(deepPack, deepHead)...), deepHead.id(), artifact.TooDeep},
		"..": {encodePack(0, in("100644 ..", file.id())...), in("100644 ..", file.id())[0].id(),
			artifact.UnsafePath},
		".": {encodePack(0, in("100644 .", file.id())...), in("100644 .", file.id())[0].id(),
			artifact.UnsafePath},
		"path as a name": {encodePack(0, in("100644 a/../../b", file.id())...),
			in("100644 a/../../b", file.id())[0].id(), artifact.UnsafePath},
		".GIT": {encodePack(0, in("100644 .GIT", file.id())...), in("100644 .GIT", file.id())[0].id(),
			artifact.UnsafePath},
		"duplicate name": {encodePack(0, in("100644 x", file.id(), "100644 x", file.id())...),
			in("100644 x", file.id(), "100644 x", file.id())[0].id(), artifact.Malformed},
		"long name": {encodePack(0, in("100644 "+long, file.id())...), in("100644 "+long, file.id())[0].id(),
			artifact.Malformed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tr, err := loadTestPack(t.Context(), t, c.pack, c.want, tightLimits)
			if got := reasonOf(t, err); got != c.is {
				t.Fatalf("reason %q, want %q: %v", got, c.is, err)
			}
			if err == nil {
				if got := files(t, tr); !maps.Equal(got, map[string]string{"file": "content\n"}) {
					t.Errorf("got %v", got)
				}
			}
			if errors.Is(err, errPanic) {
				t.Errorf("panicked: %v", err)
			}
		})
	}
}

func TestLoadPackBoundsRepeatedSubtrees(t *testing.T) {
	file := blobObject("x")
	level := treeObject("100644 file", file.id())
	objects := []packObject{file}
	for range 3 {
		objects = append(objects, level)
		var entries []any
		for j := range 10 {
			entries = append(entries, fmt.Sprintf("40000 %d", j), level.id())
		}
		level = treeObject(entries...)
	}
	head := commitObject(level)
	_, err := loadTestPack(t.Context(), t, encodePack(0, append(objects, level, head)...), head.id(), tightLimits)
	if got := reasonOf(t, err); got != artifact.TooManyFiles {
		t.Errorf("reason %q, want %q: %v", got, artifact.TooManyFiles, err)
	}
}

// The pack contains two objects both in full and as deltas of each other. A lookup by ID that
// follows the deltas could recurse forever and exhaust the stack, which recover can't catch.
func TestLoadPackWithCyclicDeltas(t *testing.T) {
	a, b := blobObject("aaaaaaaa"), blobObject("bbbbbbbb")
	toA := append([]byte{8, 8, 8}, a.body...) // any base of 8 bytes becomes a
	toB := append([]byte{8, 8, 8}, b.body...)
	tr := treeObject("100644 a", a.id(), "100644 b", b.id())
	head := commitObject(tr)
	got, err := loadTestPack(t.Context(), t, encodePack(0, head, tr, refDelta(b, toA...), refDelta(a, toB...), a, b),
		head.id(), tightLimits)
	if err != nil {
		if reasonOf(t, err) != OperationFailed {
			t.Errorf("got %v", err)
		}
		return
	}
	if f := files(t, got); f["a"] != "aaaaaaaa" || f["b"] != "bbbbbbbb" {
		t.Errorf("got %v", f)
	}
}

func TestSubmoduleCannotBeOpened(t *testing.T) {
	file := blobObject("x")
	tr := treeObject("100644 file", file.id(), "160000 module", file.id())
	head := commitObject(tr)
	got, err := loadTestPack(t.Context(), t, encodePack(0, head, tr, file), head.id(), tightLimits)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := fs.Stat(fs.FS(got), "module"); err == nil {
		t.Errorf("a submodule was opened: %v", info)
	}
	if f := files(t, got); !maps.Equal(f, map[string]string{"file": "x"}) {
		t.Errorf("got %v", f)
	}
}

func TestLoadPackReturnsContextError(t *testing.T) {
	file := blobObject("x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := loadTestPack(ctx, t, encodePack(0, file), file.id(), tightLimits)
	if reasonOf(t, err) != OperationFailed || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzPack(f *testing.F) {
	file := blobObject("content\n")
	tr := treeObject("100644 file", file.id())
	head := commitObject(tr)
	want := head.id()
	f.Add(encodePack(0, head, tr, file))
	f.Add(encodePack(0, head, tr, file, refDelta(file, 8, 2, 0x90, 2)))
	f.Add(encodePack(0, head, tr, file,
		packObject{kind: plumbing.OFSDeltaObject, baseDistance: 27, body: []byte{8, 2, 0x90, 2}}))
	f.Add(encodePack(1<<32-1, head))
	f.Add(encodePack(0, head, tr, packObject{kind: file.kind, body: file.body, size: 1 << 42}))
	f.Add([]byte("PACK"))
	f.Fuzz(func(t *testing.T, pack []byte) {
		got, err := loadTestPack(t.Context(), t, pack, want, tightLimits)
		if errors.Is(err, errPanic) {
			t.Fatalf("panicked: %v", err)
		}
		if r := reasonOf(t, err); r == artifact.Storage {
			t.Fatalf("a Storage error for an invalid pack: %v", err)
		}
		if err != nil {
			return
		}
		// The ID of the commit is a hash of its content, so only this content is possible.
		if f := files(t, got); !maps.Equal(f, map[string]string{"file": "content\n"}) {
			t.Fatalf("got %v", f)
		}
	})
}
