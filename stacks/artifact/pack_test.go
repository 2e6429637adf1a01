package artifact

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
)

func pack(t testing.TB, fsys fs.FS, o PackOptions) ([]byte, Packed) {
	t.Helper()
	var b bytes.Buffer
	p, err := Pack(t.Context(), &b, fsys, o)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), p
}

func TestPackUnpackRoundTrip(t *testing.T) {
	fsys := fstest.MapFS{
		"stacks/a/stack.yaml": {Data: []byte("kind: Stack\n")},
		"run.sh":              {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"empty":               {},
	}
	b, p := pack(t, fsys, PackOptions{})
	if p.Digest != digestOf(b) || p.Size != int64(len(b)) {
		t.Errorf("reported %s and %d bytes, wrote %s and %d", p.Digest, p.Size, digestOf(b), len(b))
	}
	dir := t.TempDir()
	size, err := Unpack(t.Context(), bytes.NewReader(b), dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if size != p.Tree {
		t.Errorf("packed %v, unpacked %v", p.Tree, size)
	}
	want := map[string]string{"stacks/a/stack.yaml": "kind: Stack\n", "run.sh": "#!/bin/sh\n", "empty": ""}
	if got := readTree(t, dir); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("run.sh must stay executable: %v %v", info, err)
	}
}

func TestPackIsDeterministic(t *testing.T) {
	files := map[string]string{"b": "2", "a/z": "1", "a.b": "3"}
	first := fstest.MapFS{}
	for name, body := range files {
		first[name] = &fstest.MapFile{Data: []byte(body), ModTime: time.Now(), Mode: 0o600}
	}
	dir := t.TempDir()
	for _, name := range []string{"b", "a.b", "a/z"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o664); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "no files in it"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, p1 := pack(t, first, PackOptions{})
	_, p2 := pack(t, os.DirFS(dir), PackOptions{})
	if p1.Digest != p2.Digest {
		t.Errorf("the same files have the digests %s and %s", p1.Digest, p2.Digest)
	}
	first["b"].Data = []byte("4")
	if _, p3 := pack(t, first, PackOptions{}); p3.Digest == p1.Digest {
		t.Error("other files must have another digest")
	}
}

func TestPackLeavesOutLinksAndInvalidNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"keep", ".git/config", "sub/.git"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
		os.Symlink("sub", filepath.Join(dir, "linked folder")),
		os.WriteFile(filepath.Join(dir, "bad\xff"), []byte("x"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	skip := func(name string, _ fs.DirEntry) bool { return filepath.Base(name) == ".git" }
	b, p := pack(t, os.DirFS(dir), PackOptions{Skip: skip})
	out := t.TempDir()
	if _, err := Unpack(t.Context(), bytes.NewReader(b), out, Limits{}); err != nil {
		t.Fatal(err)
	}
	if got := readTree(t, out); !maps.Equal(got, map[string]string{"keep": "x"}) {
		t.Errorf("packed %v", got)
	}
	if p.LeftOut != 3 || len(p.LeftOutNames) != 3 {
		t.Errorf("left out %d %q, want the two links and the name that is not UTF-8", p.LeftOut, p.LeftOutNames)
	}
}

func TestPackEnforcesLimits(t *testing.T) {
	cases := map[string]struct {
		files map[string]int
		want  Reason
	}{
		"giant file": {map[string]int{"big": 2049}, TooLarge},
		"many bytes": {map[string]int{"1": 2048, "2": 2048, "3": 1}, TooLarge},
		"deep":       {map[string]int{"1/2/3/4/5": 0}, TooDeep},
		"many files": {map[string]int{"a/1": 0, "a/2": 0, "a/3": 0, "a/4": 0, "a/5": 0, "a/6": 0, "a/7": 0, "a/8": 0,
			"a/9": 0, "b/1": 0,
			"b/2": 0, "b/3": 0, "b/4": 0, "b/5": 0, "b/6": 0}, TooManyFiles},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for f, n := range c.files {
				fsys[f] = &fstest.MapFile{Data: make([]byte, n)}
			}
			_, err := Pack(t.Context(), &bytes.Buffer{}, fsys, PackOptions{Limits: smallLimits})
			if got := reasonOf(t, err); got != c.want {
				t.Errorf("reason %q, want %q: %v", got, c.want, err)
			}
		})
	}
}

func TestPackEnforcesDownloadLimit(t *testing.T) {
	_, err := Pack(t.Context(), &bytes.Buffer{}, fstest.MapFS{"a": {Data: []byte("a")}},
		PackOptions{Limits: Limits{DownloadBytes: 20}})
	if got := reasonOf(t, err); got != TooLarge {
		t.Errorf("reason %q, want %q: %v", got, TooLarge, err)
	}
}

type brokenWriter struct{}

var errBroken = errors.New("no space left")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestPackReturnsWriteAndContextErrors(t *testing.T) {
	_, err := Pack(t.Context(), brokenWriter{}, fstest.MapFS{"a": {Data: []byte("a")}}, PackOptions{})
	if reasonOf(t, err) != Storage || !errors.Is(err, errBroken) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Pack(ctx, &bytes.Buffer{}, fstest.MapFS{"a": {Data: []byte("a")}}, PackOptions{})
	if reasonOf(t, err) != Unreachable || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
