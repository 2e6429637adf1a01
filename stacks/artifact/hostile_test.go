package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// fetchAndMeasure is the argument that makes the test binary a process of its own
// that fetches one artifact with the default limits.
const fetchAndMeasure = "fetch-and-measure"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == fetchAndMeasure {
		fetchOne(os.Args[2], os.Args[3], os.Args[4])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// measured is what that process tells.
type measured struct {
	Reason  Reason
	Message string
	// Peak is the most memory that the process had, in bytes.
	Peak int64
}

func fetchOne(url, digest, dir string) {
	var out measured
	f, err := NewFetcher(Options{Dir: dir, Attempts: 1})
	if err == nil {
		var tree *Tree
		if tree, err = f.Fetch(context.Background(), Artifact{URL: url, Digest: digest}); err == nil {
			tree.Release()
		}
	}
	var e *Error
	if errors.As(err, &e) {
		out.Reason = e.Reason
	}
	if err != nil {
		out.Message = err.Error()
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); n == 1 {
			out.Peak = kilobytes << 10
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		panic(err)
	}
}

// statedPeak is what docs/limits.md says. The race detector takes as much
// again several times over.
func statedPeak() int64 {
	if raced {
		return 256 << 20
	}
	return 64 << 20
}

// hostileArchive is made on the way to a file: it need not fit into memory.
type hostileArchive struct {
	t   testing.TB
	sum hash.Hash
	w   io.Writer
}

// part writes members of gzip, which make one stream when they are read.
func (h *hostileArchive) part(raw []byte, times int) {
	h.t.Helper()
	packed := compress(h.t, raw)
	for range times {
		if _, err := h.w.Write(packed); err != nil {
			h.t.Fatal(err)
		}
	}
}

// header writes the header of a file without its content.
func (h *hostileArchive) header(name string, size int64) {
	h.t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
		h.t.Fatal(err)
	}
	h.part(b.Bytes(), 1)
}

// zeros writes so many MiB of them.
func (h *hostileArchive) zeros(mib int) { h.t.Helper(); h.part(make([]byte, 1<<20), mib) }

// hostileArchives by what they are, and what refuses each.
var hostileArchives = map[string]struct {
	write func(h *hostileArchive)
	want  Reason
}{
	"a file of 10 GiB":           {func(h *hostileArchive) { h.header("big", 10<<30); h.zeros(10 << 10) }, TooLarge},
	"files of 3 GiB together":    {func(h *hostileArchive) { hostileFiles(h) }, TooLarge},
	"10 GiB behind the end":      {func(h *hostileArchive) { h.part(makeTar(h.t, file("x", "x")), 1); h.zeros(10 << 10) }, TooLarge},
	"a million files":            {func(h *hostileArchive) { millionFiles(h) }, TooManyFiles},
	"ten thousand levels":        {func(h *hostileArchive) { h.part(makeTar(h.t, file(strings.Repeat("d/", 10_000)+"f", "")), 1) }, TooDeep},
	"a name of a gigabyte":       {func(h *hostileArchive) { longRecord(h, tar.TypeGNULongName) }, Malformed},
	"an attribute of a gigabyte": {func(h *hostileArchive) { longRecord(h, tar.TypeXHeader) }, Malformed},
	"a link out of the tree": {func(h *hostileArchive) {
		h.part(makeTar(h.t, member{name: "l", link: "/etc", kind: tar.TypeSymlink}, file("l/passwd", "x")), 1)
	}, UnsafePath},
	"links that add up": {func(h *hostileArchive) {
		h.part(makeTar(h.t, member{name: "a", link: ".", kind: tar.TypeSymlink}, member{name: "a/b", link: "..", kind: tar.TypeSymlink}), 1)
	}, UnsafePath},
	"a path out of the tree":       {func(h *hostileArchive) { h.part(makeTar(h.t, file("../../evil", "x")), 1) }, UnsafePath},
	"a tarball that is cut off":    {func(h *hostileArchive) { h.header("f", 32<<20); h.zeros(16) }, Malformed},
	"no tarball":                   {func(h *hostileArchive) { h.part(bytes.Repeat([]byte("no tarball. "), 1<<16), 64) }, Malformed},
	"no archive":                   {func(h *hostileArchive) { _, _ = h.w.Write(bytes.Repeat([]byte("x"), 64<<20)) }, Malformed},
	"a broken stream":              {func(h *hostileArchive) { h.header("f", 8<<20); h.zeros(4); _, _ = h.w.Write([]byte("\x1f\x8b broken")) }, Malformed},
	"a checksum that is not right": {func(h *hostileArchive) { brokenChecksum(h) }, Malformed},
}

func hostileFiles(h *hostileArchive) {
	for i := range 60 {
		h.header(fmt.Sprintf("f%d", i), 50<<20)
		h.zeros(50)
	}
}

func millionFiles(h *hostileArchive) {
	thousand := func(i int) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for j := range 1000 {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d/%d", i, j), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
				h.t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	// Nobody reads on to the second half of them.
	for i := range 60 {
		h.part(thousand(i), 1)
	}
	h.part(thousand(60), 940)
}

// longRecord is a record of a gigabyte that is to be read before the entry that it is about.
func longRecord(h *hostileArchive, kind byte) {
	raw := make([]byte, 512)
	copy(raw, "././@LongLink")
	copy(raw[100:], "0000644\x000000000\x000000000\x00")
	copy(raw[124:], fmt.Sprintf("%011o\x00", 1<<30))
	copy(raw[136:], "00000000000\x00")
	raw[156] = kind
	copy(raw[257:], "ustar\x0000")
	copy(raw[148:], "        ")
	var sum int64
	for _, c := range raw {
		sum += int64(c)
	}
	copy(raw[148:], fmt.Sprintf("%06o\x00 ", sum))
	h.part(raw, 1)
	h.part(bytes.Repeat([]byte("n"), 1<<20), 1<<10)
}

// brokenChecksum is a whole tarball whose compression says that it is not.
func brokenChecksum(h *hostileArchive) {
	packed := compress(h.t, makeTar(h.t, file("a", strings.Repeat("a", 1<<20))))
	packed[len(packed)-8] ^= 1
	_, _ = h.w.Write(packed)
}

// TestHostileArtifactsTakeLittleMemory: a process of its own fetches each with the
// default limits. It never has more memory than is stated, whatever the
// artifact, and leaves nothing on the disk.
func TestHostileArtifactsTakeLittleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells how much memory a process had")
	}
	most := int64(0)
	for name, c := range hostileArchives {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "archive"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			h := &hostileArchive{t: t, sum: sha256.New()}
			h.w = io.MultiWriter(f, h.sum)
			c.write(h)
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				http.ServeContent(w, r, "archive.tar.gz", time.Time{}, f)
			})
			most = max(most, inItsOwnProcess(t, s.URL, "sha256:"+hex.EncodeToString(h.sum.Sum(nil)), c.want))
		})
	}
	t.Run("a wrong digest", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { endless(w, 100) })
		most = max(most, inItsOwnProcess(t, s.URL, digestOf(nil), DigestMismatch))
	})
	t.Run("a download without an end", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { endless(w, 1<<20) })
		most = max(most, inItsOwnProcess(t, s.URL, digestOf(nil), TooLarge))
	})
	t.Logf("the most memory that a process had: %d MiB, stated: %d MiB", most>>20, statedPeak()>>20)
}

// endless writes so many MiB, unless who reads has enough.
func endless(w http.ResponseWriter, mib int) {
	block := bytes.Repeat([]byte{0x1f, 0x8b}, 1<<19)
	for range mib {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func inItsOwnProcess(t *testing.T, url, digest string, want Reason) int64 {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(self, fetchAndMeasure, url, digest, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got measured
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Reason != want {
		t.Errorf("reason %q, want %q: %s", got.Reason, want, got.Message)
	}
	if len(got.Message) > 2000 {
		t.Errorf("a message of %d bytes", len(got.Message))
	}
	if got.Peak == 0 || got.Peak > statedPeak() {
		t.Errorf("it had %d MiB of memory, stated is %d", got.Peak>>20, statedPeak()>>20)
	}
	onlyTrees(t, dir)
	return got.Peak
}
