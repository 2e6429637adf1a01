package source

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/problem"
)

// newTree returns a tree of a new folder, and the folder.
func newTree(t *testing.T) (*Tree, string) {
	t.Helper()
	root := t.TempDir()
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tree.Close)
	return tree, root
}

// writeSparse creates a sparse file of the given size.
func writeSparse(t *testing.T, root, name string, size int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func wantProblem(t *testing.T, err error, text string) {
	t.Helper()
	if p := new(problem.Error); !errors.As(err, &p) || p.File == "" || !strings.Contains(err.Error(), text) {
		t.Errorf("%T %v, want a problem.Error with %q", err, err, text)
	}
}

func TestFileSizeIsBounded(t *testing.T) {
	tree, root := newTree(t)
	writeSparse(t, root, "large", MaxFile+1)
	writeSparse(t, root, "fits", MaxFile)
	_, err := tree.Read("large", MaxFile)
	wantProblem(t, err, "the file has 16777217 bytes; 16777216 are allowed")
	if data, err := tree.Read("fits", MaxFile); err != nil || len(data) != MaxFile {
		t.Errorf("exactly as large as allowed: %d bytes, %v", len(data), err)
	}
}

func TestTotalBytesAreBounded(t *testing.T) {
	tree, root := newTree(t)
	writeSparse(t, root, "f", MaxFile)
	for i := range MaxTotal / MaxFile {
		if _, err := tree.Read("f", MaxFile); err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
	}
	_, err := tree.Read("f", MaxFile)
	wantProblem(t, err, "more than 268435456 bytes are read")
}

func TestReadCountIsBounded(t *testing.T) {
	tree, root := newTree(t)
	writeSparse(t, root, "f", 0)
	for i := range MaxFiles {
		if _, err := tree.Read("f", 1); err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
	}
	_, err := tree.Read("f", 1)
	wantProblem(t, err, "more than 50000 files are read")
}

func TestFolderEntriesAreBounded(t *testing.T) {
	tree, root := newTree(t)
	// Half of the files in each of two folders, because the entries of one folder are bounded, too.
	for _, dir := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range MaxFiles / 2 {
			writeSparse(t, root, filepath.Join(dir, strconv.Itoa(i)), 0)
		}
	}
	_, err := tree.Files(".", nil)
	wantProblem(t, err, "more than 50000 files and folders")
	if list, err := tree.Files("a", nil); err != nil || len(list) != MaxFiles/2 {
		t.Errorf("%d files, %v", len(list), err)
	}
	for i := range MaxFiles/2 + 1 {
		writeSparse(t, root, filepath.Join("a", fmt.Sprintf("x%d", i)), 0)
	}
	_, err = tree.ReadDir("a")
	wantProblem(t, err, "the folder has more than 50000 entries")
}

func TestDepthIsBounded(t *testing.T) {
	tree, root := newTree(t)
	deep := strings.TrimSuffix(strings.Repeat("d/", MaxDepth), "/")
	if err := os.MkdirAll(filepath.Join(root, deep), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.Files(".", nil); err != nil {
		t.Errorf("exactly as deep as allowed: %v", err)
	}
	if err := os.Mkdir(filepath.Join(root, deep, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := tree.Files(".", nil)
	wantProblem(t, err, "nested deeper than 32")
}

// Read returns the decrypted content of an encrypted file, or records the file with the component
// that it was read for.
func TestEncryptedFilesAreRecordedOrReplaced(t *testing.T) {
	tree, root := newTree(t)
	const sealed = "a: ENC[x]\nsops: {mac: x}\n"
	for name, content := range map[string]string{"sealed.yaml": sealed, "plain.yaml": "sops: none\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name, want string) {
		t.Helper()
		if data, err := tree.Read(name, MaxFile); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	tree.SetComponent("one")
	read("sealed.yaml", sealed)
	read("plain.yaml", "sops: none\n")
	tree.SetComponent("two")
	read("./sealed.yaml", sealed)
	if got := tree.EncryptedFiles(); !slices.Equal(got,
		[]EncryptedFile{{"sealed.yaml", "one"}, {"sealed.yaml", "two"}}) {
		t.Errorf("encrypted files: %v", got)
	}
	before := tree.Trace()
	tree.SetDecrypted(map[string][]byte{"sealed.yaml": []byte("a: 1\n"), "plain.yaml": []byte("no")})
	read("sealed.yaml", "a: 1\n")
	read("plain.yaml", "sops: none\n")
	if got := tree.DecryptedFiles(); !slices.Equal(got, []string{"sealed.yaml"}) {
		t.Errorf("decrypted files: %v", got)
	}
	if !maps.Equal(before, tree.Trace()) || !tree.Matches(before) {
		t.Error("the trace must hash the stored content, not the decrypted one")
	}
	_, err := tree.Read("sealed.yaml", 4)
	wantProblem(t, err, "allowed")
	tree.SetDecrypted(map[string][]byte{"sealed.yaml": []byte(strings.Repeat("x", 100))})
	_, err = tree.Read("sealed.yaml", 50)
	wantProblem(t, err, "the file has 100 bytes once decrypted; 50 are allowed")
}
