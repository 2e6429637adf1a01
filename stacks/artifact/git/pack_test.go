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

var tight = Limits{PackBytes: 1 << 20, ObjectBytes: 64 << 10, Objects: 50,
	Tree: artifact.Limits{FileBytes: 32 << 10, UnpackedBytes: 32 << 10, Files: 30, Depth: 5}}

// packed is an object of a pack made for a test.
type packed struct {
	kind plumbing.ObjectType
	base plumbing.Hash // of a delta
	back int           // of an offset delta: bytes back
	body []byte
	// says overrides the length of body in the header.
	says int
}

func (p packed) id() plumbing.Hash { return plumbing.ComputeHash(p.kind, p.body) }

func blob(s string) packed { return packed{kind: plumbing.BlobObject, body: []byte(s)} }

// folderOf is a tree of entries such as "100644 name" with their objects.
func folderOf(entries ...any) packed {
	var b bytes.Buffer
	for i := 0; i < len(entries); i += 2 {
		h, ok := entries[i+1].(plumbing.Hash)
		if !ok {
			panic("an entry needs an object")
		}
		fmt.Fprintf(&b, "%s\x00%s", entries[i], h[:])
	}
	return packed{kind: plumbing.TreeObject, body: b.Bytes()}
}

func commitOf(tree packed) packed {
	body := fmt.Sprintf("tree %s\nauthor a <a@example.com> 0 +0000\ncommitter a <a@example.com> 0 +0000\n\nm\n", tree.id())
	return packed{kind: plumbing.CommitObject, body: []byte(body)}
}

func refDelta(base packed, delta ...byte) packed {
	return packed{kind: plumbing.REFDeltaObject, base: base.id(), body: delta}
}

// packOf writes a pack; count 0 says how many objects there are.
func packOf(count uint32, objects ...packed) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	if count == 0 {
		count = uint32(len(objects))
	}
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, count})
	for _, o := range objects {
		size := uint64(len(o.body))
		if o.says != 0 {
			size = uint64(o.says)
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
			b.WriteByte(byte(o.back))
		}
		z := zlib.NewWriter(&b)
		_, _ = z.Write(o.body)
		_ = z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

func parse(ctx context.Context, t testing.TB, pack []byte, want plumbing.Hash, limits Limits) (*tree, error) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "pack")
	if err := os.WriteFile(name, pack, 0o600); err != nil {
		t.Fatal(err)
	}
	var tr *tree
	err := guard(func() error {
		st, err := resolve(ctx, name, filepath.Join(dir, "objects"), limits.WithDefaults())
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = st.close() })
		if !st.has(want) {
			return fail(CommitNotFound, "not in the pack")
		}
		tr, err = readTree(ctx, st, want, limits.WithDefaults().Tree)
		return err
	})
	return tr, err
}

func TestPacks(t *testing.T) {
	file := blob("content\n")
	good := folderOf("100644 file", file.id())
	head := commitOf(good)
	// 10 levels of 10 times the same folder are 10^10 files in 11 objects.
	bomb := []packed{file}
	level := folderOf("100644 file", file.id())
	for range 10 {
		bomb = append(bomb, level)
		var entries []any
		for j := range 10 {
			entries = append(entries, fmt.Sprintf("40000 %d", j), level.id())
		}
		level = folderOf(entries...)
	}
	bombHead := commitOf(level)
	bomb = append(bomb, level, bombHead)
	deep := folderOf("100644 file", file.id())
	deepPack := []packed{file, deep}
	for range 20 {
		deep = folderOf("40000 d", deep.id())
		deepPack = append(deepPack, deep)
	}
	deepHead := commitOf(deep)

	in := func(entries ...any) []packed {
		tr := folderOf(entries...)
		return []packed{commitOf(tr), tr, file}
	}
	long := strings.Repeat("n", 256)
	cases := map[string]struct {
		pack []byte
		want plumbing.Hash
		is   Reason
	}{
		"good":                {packOf(0, head, good, file), head.id(), ""},
		"an object twice":     {packOf(0, head, good, file, file), head.id(), ""},
		"nothing":             {nil, head.id(), OperationFailed},
		"not a pack":          {[]byte("<html>"), head.id(), OperationFailed},
		"empty pack":          {packOf(0), head.id(), CommitNotFound},
		"another commit":      {packOf(0, file), head.id(), CommitNotFound},
		"a file, no commit":   {packOf(0, file), file.id(), CommitNotFound},
		"no folder":           {packOf(0, head, file), head.id(), OperationFailed},
		"no file":             {packOf(0, head, good), head.id(), OperationFailed},
		"folder for a file":   {packOf(0, append(in("100644 x", good.id()), good)...), in("100644 x", good.id())[0].id(), OperationFailed},
		"cut off":             {packOf(0, head, good, file)[:80], head.id(), OperationFailed},
		"wrong checksum":      {append(packOf(0, head, good, file), 1)[1:], head.id(), OperationFailed},
		"four billion":        {packOf(1<<32-1, head), head.id(), Reason(artifact.TooManyFiles)},
		"more than there are": {packOf(9, head, good, file), head.id(), OperationFailed},
		"says too little":     {packOf(0, head, good, packed{kind: file.kind, body: file.body, says: 2}), head.id(), OperationFailed},
		"says too much":       {packOf(0, head, good, packed{kind: file.kind, body: file.body, says: 2000}), head.id(), OperationFailed},
		"says terabytes":      {packOf(0, head, good, packed{kind: file.kind, body: file.body, says: 1 << 42}), head.id(), Reason(artifact.TooLarge)},
		"inflates":            {packOf(0, head, good, blob(strings.Repeat("0", 32<<10+1))), head.id(), Reason(artifact.TooLarge)},
		"inflates in all": {packOf(0, head, blob(strings.Repeat("0", 30<<10)), blob(strings.Repeat("1", 30<<10)), blob(strings.Repeat("2", 30<<10))),
			head.id(), Reason(artifact.TooLarge)},
		// Base of 8 bytes, result of 2^35.
		"delta of gigabytes": {packOf(0, head, good, file, refDelta(file, 8, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 0x90, 8)), head.id(), Reason(artifact.TooLarge)},
		// Results of 30 KiB each, of 8 bytes.
		"deltas that add up": {packOf(0, head, good, file, refDelta(file, 8, 0x80, 0xf0, 1), refDelta(file, 8, 0x81, 0xf0, 1), refDelta(file, 8, 0x82, 0xf0, 1)),
			head.id(), Reason(artifact.TooLarge)},
		"delta without an end":  {packOf(0, head, refDelta(head, bytes.Repeat([]byte{0xff}, 30)...)), head.id(), Reason(artifact.TooLarge)},
		"delta of nothing":      {packOf(0, head, refDelta(head)), head.id(), Reason(artifact.TooLarge)},
		"delta out of its base": {packOf(0, head, good, file, refDelta(file, 8, 8, 0x91, 100, 8)), head.id(), OperationFailed},
		"delta of the unknown":  {packOf(0, head, refDelta(blob("unknown"), 7, 1, 0x90, 1)), head.id(), OperationFailed},
		"offset before the pack": {packOf(0, head, packed{kind: plumbing.OFSDeltaObject, back: 127, body: []byte{1, 1, 0x90, 1}}),
			head.id(), OperationFailed},
		"offset of itself":       {packOf(0, head, packed{kind: plumbing.OFSDeltaObject, back: 0, body: []byte{1, 1, 0x90, 1}}), head.id(), OperationFailed},
		"unknown kind of object": {packOf(0, head, packed{kind: 5, body: []byte("x")}), head.id(), OperationFailed},
		"folders without end":    {packOf(0, bomb...), bombHead.id(), Reason(artifact.TooDeep)},
		"deep":                   {packOf(0, append(deepPack, deepHead)...), deepHead.id(), Reason(artifact.TooDeep)},
		"..":                     {packOf(0, in("100644 ..", file.id())...), in("100644 ..", file.id())[0].id(), Reason(artifact.UnsafePath)},
		".":                      {packOf(0, in("100644 .", file.id())...), in("100644 .", file.id())[0].id(), Reason(artifact.UnsafePath)},
		"a path for a name":      {packOf(0, in("100644 a/../../b", file.id())...), in("100644 a/../../b", file.id())[0].id(), Reason(artifact.UnsafePath)},
		".GIT":                   {packOf(0, in("100644 .GIT", file.id())...), in("100644 .GIT", file.id())[0].id(), Reason(artifact.UnsafePath)},
		"a name twice": {packOf(0, in("100644 x", file.id(), "100644 x", file.id())...),
			in("100644 x", file.id(), "100644 x", file.id())[0].id(), Reason(artifact.Malformed)},
		"a long name": {packOf(0, in("100644 "+long, file.id())...), in("100644 "+long, file.id())[0].id(), Reason(artifact.Malformed)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			tr, err := parse(t.Context(), t, c.pack, c.want, tight)
			if got := reasonOf(t, err); got != c.is {
				t.Fatalf("reason %q, want %q: %v", got, c.is, err)
			}
			if err == nil {
				if got := files(t, tr); !maps.Equal(got, map[string]string{"file": "content\n"}) {
					t.Errorf("got %v", got)
				}
			}
			if errors.As(err, new(*PanicError)) {
				t.Errorf("panicked: %v", err)
			}
		})
	}
}

func TestFoldersWithoutEndAreBoundedByFiles(t *testing.T) {
	file := blob("x")
	level := folderOf("100644 file", file.id())
	objects := []packed{file}
	for range 3 {
		objects = append(objects, level)
		var entries []any
		for j := range 10 {
			entries = append(entries, fmt.Sprintf("40000 %d", j), level.id())
		}
		level = folderOf(entries...)
	}
	head := commitOf(level)
	_, err := parse(t.Context(), t, packOf(0, append(objects, level, head)...), head.id(), tight)
	if got := reasonOf(t, err); got != Reason(artifact.TooManyFiles) {
		t.Errorf("reason %q, want %q: %v", got, artifact.TooManyFiles, err)
	}
}

// A pack in which two objects are each a delta of the other, and whole as well:
// looking one up by its id can go round for ever and exhaust the stack, which
// no recover catches.
func TestDeltasOfEachOther(t *testing.T) {
	a, b := blob("aaaaaaaa"), blob("bbbbbbbb")
	toA := append([]byte{8, 8, 8}, a.body...) // any base of 8 bytes becomes a
	toB := append([]byte{8, 8, 8}, b.body...)
	tr := folderOf("100644 a", a.id(), "100644 b", b.id())
	head := commitOf(tr)
	got, err := parse(t.Context(), t, packOf(0, head, tr, refDelta(b, toA...), refDelta(a, toB...), a, b), head.id(), tight)
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

func TestSubmoduleIsNoFile(t *testing.T) {
	file := blob("x")
	tr := folderOf("100644 file", file.id(), "160000 module", file.id())
	head := commitOf(tr)
	got, err := parse(t.Context(), t, packOf(0, head, tr, file), head.id(), tight)
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

func TestInterrupted(t *testing.T) {
	file := blob("x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := parse(ctx, t, packOf(0, file), file.id(), tight)
	if reasonOf(t, err) != OperationFailed || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzPack(f *testing.F) {
	file := blob("content\n")
	tr := folderOf("100644 file", file.id())
	head := commitOf(tr)
	want := head.id()
	f.Add(packOf(0, head, tr, file))
	f.Add(packOf(0, head, tr, file, refDelta(file, 8, 2, 0x90, 2)))
	f.Add(packOf(0, head, tr, file, packed{kind: plumbing.OFSDeltaObject, back: 27, body: []byte{8, 2, 0x90, 2}}))
	f.Add(packOf(1<<32-1, head))
	f.Add(packOf(0, head, tr, packed{kind: file.kind, body: file.body, says: 1 << 42}))
	f.Add([]byte("PACK"))
	f.Fuzz(func(t *testing.T, pack []byte) {
		got, err := parse(t.Context(), t, pack, want, tight)
		if errors.As(err, new(*PanicError)) {
			t.Fatalf("panicked: %v", err)
		}
		if r := reasonOf(t, err); r == Reason(artifact.Storage) {
			t.Fatalf("a pack is to blame, not the disk: %v", err)
		}
		if err != nil {
			return
		}
		// The commit is named by its content: there is no other that fits.
		if f := files(t, got); !maps.Equal(f, map[string]string{"file": "content\n"}) {
			t.Fatalf("got %v", f)
		}
	})
}
