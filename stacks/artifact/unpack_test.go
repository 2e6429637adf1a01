package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var smallLimits = Limits{DownloadBytes: 1 << 20, UnpackedBytes: 4096, FileBytes: 2048, Files: 16, Depth: 4}

func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	b := makeTarball(t,
		member{name: "pax_global_header", kind: tar.TypeXGlobalHeader},
		member{name: "./", kind: tar.TypeDir, mode: 0o755},
		file("./a.yaml", "a: 1\n"),
		member{name: "scripts/", kind: tar.TypeDir, mode: 0o700},
		member{name: "scripts/run.sh", body: "#!/bin/sh\n", mode: 0o755},
		file("x/y/z/deep.yaml", ""), // its directories have no entries
		member{name: "unreadable", body: "u", mode: 0},
	)
	size, err := Unpack(t.Context(), bytes.NewReader(b), dir, smallLimits)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a.yaml": "a: 1\n", "scripts/run.sh": "#!/bin/sh\n", "x/y/z/deep.yaml": "",
		"unreadable": "u"}
	if got := readTree(t, dir); !maps.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if want := (Size{Files: 8, Bytes: 16}); size != want {
		t.Errorf("size %v, want %v", size, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "scripts/run.sh")); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("an executable file must stay executable: %v %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a.yaml")); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("a file must be read-only: %v %v", info.Mode(), err)
	}
}

func TestUnpackRejectsInvalidTarballs(t *testing.T) {
	link := func(name, to string) member { return member{name: name, link: to, kind: tar.TypeSymlink} }
	many := make([]member, 17)
	for i := range many {
		many[i] = file(fmt.Sprintf("f%d", i), "")
	}
	var wide []member // few files, many directories
	for i := range 6 {
		wide = append(wide, file(fmt.Sprintf("%d/%d/%d/f", i, i, i), ""))
	}
	cases := map[string]struct {
		members []member
		want    Reason
		entry   string
	}{
		"symbolic link to a path outside the tree": {[]member{link("passwd", "../../etc/passwd")},
			UnsafePath, "passwd"},
		"absolute symbolic link": {[]member{link("passwd", "/etc/passwd")}, UnsafePath,
			"passwd"},
		"symbolic links that combine to a path outside the tree": {
			[]member{link("a", "."), link("a/b", ".."), file("a/b/c", "x")}, UnsafePath, "a"},
		"symbolic link that stays inside": {[]member{file("x", "x"), link("y", "x")}, UnsafePath,
			"y"},
		"file through a symbolic link": {[]member{link("out", "/tmp"),
			file("out/owned", "x")}, UnsafePath, "out"},
		"hard link": {
			[]member{{name: "h", link: "/etc/passwd", kind: tar.TypeLink}}, UnsafePath, "h"},
		"hard link inside": {[]member{file("x", "x"),
			{name: "h", link: "x", kind: tar.TypeLink}}, UnsafePath, "h"},
		"character device": {[]member{{name: "null", kind: tar.TypeChar}},
			UnsafePath, "null"},
		"block device": {[]member{{name: "sda", kind: tar.TypeBlock}},
			UnsafePath, "sda"},
		"pipe": {[]member{{name: "fifo", kind: tar.TypeFifo}},
			UnsafePath, "fifo"},
		"unknown type": {[]member{{name: "what", kind: 'Z'}}, Malformed,
			"what"},
		"path outside the tree": {[]member{file("../x", "x")}, UnsafePath, "../x"},
		"path that leaves and reenters the tree": {[]member{file("a/../../a/x", "x")}, UnsafePath,
			"a/../../a/x"},
		"path with .. that stays inside": {[]member{file("a/../x", "x")}, UnsafePath, "a/../x"},
		"directory outside the tree": {[]member{{name: "../d/", kind: tar.TypeDir}},
			UnsafePath, "../d/"},
		"absolute path":       {[]member{file("/etc/x", "x")}, UnsafePath, "/etc/x"},
		"backslash":           {[]member{file(`..\x`, "x")}, UnsafePath, `..\x`},
		"not UTF-8":           {[]member{file("a\xff", "x")}, UnsafePath, "a\xff"},
		"file without a name": {[]member{file("./.", "x")}, Malformed, "./."},
		"file twice": {[]member{file("x", "1"), file("./x", "2")},
			Malformed, "x"},
		"directory with the path of a file": {[]member{file("x", "1"), file("x/y", "2")},
			Malformed, "x"},
		"file with the path of a directory": {[]member{file("x/y", "2"), file("x", "1")},
			Malformed, "x"},
		"directory entry with the path of a file": {
			[]member{file("x", "2"), {name: "x/", kind: tar.TypeDir}}, Malformed, "x"},
		"long name": {[]member{file(strings.Repeat("n", 256), "x")},
			Malformed, strings.Repeat("n", 256)},
		"one giant file": {[]member{file("big", strings.Repeat("x", 2049))},
			TooLarge, "big"},
		"many bytes in total": {[]member{file("1", strings.Repeat("x", 2048)),
			file("2", strings.Repeat("x", 2048)), file("3", "x")}, TooLarge, "3"},
		"many files":                     {many, TooManyFiles, ""},
		"many directories for few files": {wide, TooManyFiles, ""},
		"deep tree": {[]member{file("1/2/3/4/5", "")}, TooDeep,
			"1/2/3/4/5"},
		"ten thousand levels": {[]member{file(strings.Repeat("d/", 10_000)+"f", "")},
			TooDeep, strings.Repeat("d/", 10_000) + "f"},
		"ten thousand levels of directories": {
			[]member{{name: strings.Repeat("d/", 10_000), kind: tar.TypeDir}}, TooDeep,
			strings.Repeat("d/", 10_000)},
		"truncated file": {
			[]member{{name: "cut", body: "abc", kind: tar.TypeReg, size: 1000}}, Malformed, ""},
		"truncated file with a size of terabytes": {
			[]member{{name: "cut", body: "abc", kind: tar.TypeReg, size: 1 << 42}}, TooLarge, "cut"},
		"depth reached only by dots": {[]member{file("./././././x", "")}, "", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "in", "tree")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			_, err := Unpack(t.Context(), bytes.NewReader(makeTarball(t, c.members...)), dir, smallLimits)
			if got := reasonOf(t, err); got != c.want {
				t.Fatalf("reason %q, want %q: %v", got, c.want, err)
			}
			expectNothingOutside(t, parent, dir)
			if c.want == "" {
				return
			}
			var e *Error
			if errors.As(err, &e); e.Entry != c.entry {
				t.Errorf("entry %q, want %q", e.Entry, c.entry)
			}
			if !e.Terminal() {
				t.Error("must be terminal: a retry of the same tarball can't succeed")
			}
			if len(e.Error()) > 2000 {
				t.Errorf("a message of %d bytes", len(e.Error()))
			}
		})
	}
}

// expectNothingOutside fails the test if around contains anything but the directory dir, or
// if dir contains anything but regular files and directories.
func expectNothingOutside(t testing.TB, parent, dir string) {
	t.Helper()
	err := filepath.WalkDir(parent, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			t.Errorf("%s is a %s", path, d.Type())
		}
		if !strings.HasPrefix(dir+"/", path+"/") && !strings.HasPrefix(path, dir+"/") {
			t.Errorf("%s was created outside the tree", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTreePathEnforcesLimits(t *testing.T) {
	element := strings.Repeat("n", maxElement)
	for name, want := range map[string]Reason{
		element:       "",
		element + "n": Malformed,
		strings.Repeat(element+"/", maxPath/(maxElement+1)):       "",
		strings.Repeat(element+"/", maxPath/(maxElement+1)) + "x": Malformed,
		strings.Repeat("d/", DefaultLimits().Depth):               "",
		strings.Repeat("d/", DefaultLimits().Depth) + "d":         TooDeep,
	} {
		if _, err := treePath(name, DefaultLimits().Depth); reasonOf(t, err) != want {
			t.Errorf("%d bytes: %v, want %q", len(name), err, want)
		}
	}
}

func TestUnpackRejectsDecompressionBombs(t *testing.T) {
	// 8 MiB of zeros, as the content of a file and after the end of the tarball.
	zeros := make([]byte, 8<<20)
	inside := compress(t, makeTar(t, member{name: "bomb", body: string(zeros)}))
	behind := compress(t, append(makeTar(t, file("x", "x")), zeros...))
	for name, b := range map[string][]byte{"a file": inside, "after the end": behind} {
		if len(b) > 1<<20 {
			t.Fatalf("%s: %d bytes are too many for a bomb", name, len(b))
		}
		_, err := Unpack(t.Context(), bytes.NewReader(b), t.TempDir(), smallLimits)
		if got := reasonOf(t, err); got != TooLarge {
			t.Errorf("%s: reason %q, want %q: %v", name, got, TooLarge, err)
		}
	}
}

func TestUnpackRejectsTruncatedTarball(t *testing.T) {
	whole := makeTarball(t, file("a", strings.Repeat("abcdefgh", 100)), file("b", "b"))
	for _, n := range []int{0, 1, 9, len(whole) / 2, len(whole) - 9, len(whole) - 1} {
		_, err := Unpack(t.Context(), bytes.NewReader(whole[:n]), t.TempDir(), smallLimits)
		if got := reasonOf(t, err); got != Malformed {
			t.Errorf("%d of %d bytes: reason %q, want %q: %v", n, len(whole), got, Malformed, err)
		}
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-6] ^= 0xff // the checksum of gzip
	_, err := Unpack(t.Context(), bytes.NewReader(damaged), t.TempDir(), smallLimits)
	if got := reasonOf(t, err); got != Malformed {
		t.Errorf("wrong checksum: reason %q, want %q: %v", got, Malformed, err)
	}
}

func TestUnpackReturnsContextError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Unpack(ctx, bytes.NewReader(makeTarball(t, file("a", "a"))), t.TempDir(), smallLimits)
	if got := reasonOf(t, err); got != Unreachable {
		t.Errorf("reason %q, want %q: %v", got, Unreachable, err)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("must wrap context.Canceled: %v", err)
	}
}

func TestUnpackReturnsStorageError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	_, err := Unpack(t.Context(), bytes.NewReader(makeTarball(t, file("a", "a"))), dir, smallLimits)
	if got := reasonOf(t, err); got != Storage || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reason %q, want %q: %v", got, Storage, err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(makeTar(f, file("a/b.yaml", "x: 1"), member{name: "d/", kind: tar.TypeDir}))
	f.Add(makeTar(f, member{name: "l", link: "../../x", kind: tar.TypeSymlink}, file("l/x", "x")))
	f.Add(makeTar(f, member{name: "h", link: "/etc/passwd", kind: tar.TypeLink}))
	f.Add(makeTar(f, file("../x", "x")))
	f.Add(makeTar(f, file("/x", "x"), member{name: "dev", kind: tar.TypeChar}))
	f.Add(makeTar(f, file(strings.Repeat("d/", 300)+"f", "")))
	f.Add(makeTar(f, file("x", "1"), file("x/y", "2")))
	f.Add(makeTar(f, member{name: "cut", body: "abc", size: 1 << 42}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		parent := t.TempDir()
		dir := filepath.Join(parent, "tree")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		size, err := unpackTar(t.Context(), bytes.NewReader(b), dir, smallLimits)
		if reason := reasonOf(t, err); reason == Storage {
			t.Fatalf("a Storage error for an invalid tarball: %v", err)
		}
		expectNothingOutside(t, parent, dir)
		onDisk, merr := measure(t.Context(), dir)
		if merr != nil {
			t.Fatal(merr)
		}
		if onDisk.Bytes > smallLimits.UnpackedBytes || onDisk.Files > smallLimits.Files+1 {
			t.Fatalf("unpacked %v with limits %v", onDisk, smallLimits)
		}
		if err == nil && onDisk != size {
			t.Fatalf("reported %v, unpacked %v", size, onDisk)
		}
	})
}

func FuzzParseDigest(f *testing.F) {
	for _, s := range []string{"", ":", "sha256", "sha256:", "sha256:" + strings.Repeat("a", 64),
		"sha256:" + strings.Repeat("A", 64),
		"sha256:../../../../etc/passwd", "sha1:" + strings.Repeat("a", 40), "sha512:" + strings.Repeat("a", 128),
		"SHA256:" + strings.Repeat("0", 64)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sum, err := ParseDigest(s)
		if err != nil {
			if !errors.As(err, new(*Error)) || sum != "" {
				t.Fatalf("%q: %q and %T", s, sum, err)
			}
			return
		}
		if s != "sha256:"+sum || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
			t.Fatalf("%q was parsed as %q", s, sum)
		}
	})
}

func TestParseDigest(t *testing.T) {
	sum := strings.Repeat("0123456789abcdef", 4)
	for digest, want := range map[string]Reason{
		"sha256:" + sum:                    "",
		"":                                 UnsupportedDigest,
		"sha1:" + sum[:40]:                 UnsupportedDigest,
		"sha512:" + sum + sum:              UnsupportedDigest,
		"blake3:" + sum:                    UnsupportedDigest,
		sum:                                Malformed,
		"sha256:" + sum[1:]:                Malformed,
		"sha256:" + strings.ToUpper(sum):   Malformed,
		"sha256:../../" + sum[:58]:         Malformed,
		"sha256:" + sum[:63] + "\n":        Malformed,
		"sha256:" + strings.Repeat(sum, 9): Malformed,
	} {
		if _, err := ParseDigest(digest); reasonOf(t, err) != want {
			t.Errorf("%q: %v, want %q", digest, err, want)
		}
	}
}
