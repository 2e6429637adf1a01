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

// fetchAndMeasure is the argument with which the test binary fetches one artifact with the
// default limits, in a separate process.
const fetchAndMeasure = "fetch-and-measure"

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == fetchAndMeasure {
		fetchOne(os.Args[2], os.Args[3], os.Args[4])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fetchResult is the output of that process, as JSON.
type fetchResult struct {
	Reason  Reason
	Message string
	// Peak is the peak memory of the process, in bytes.
	Peak int64
}

func fetchOne(url, digest, dir string) {
	var out fetchResult
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

// documentedPeak is the peak memory in docs/limits.md, in bytes. The race detector needs
// several times as much.
func documentedPeak() int64 {
	if raceEnabled {
		return 256 << 20
	}
	return 64 << 20
}

// hostileArchive writes an archive to a file piece by piece, so that it need not fit into
// memory.
type hostileArchive struct {
	t   testing.TB
	sum hash.Hash
	w   io.Writer
}

// writeMember writes raw as a gzip member, several times. A reader sees the members as one
// stream.
func (h *hostileArchive) writeMember(raw []byte, times int) {
	h.t.Helper()
	packed := compress(h.t, raw)
	for range times {
		if _, err := h.w.Write(packed); err != nil {
			h.t.Fatal(err)
		}
	}
}

// writeHeader writes the tar header of a file without its content.
func (h *hostileArchive) writeHeader(name string, size int64) {
	h.t.Helper()
	var b bytes.Buffer
	if err := tar.NewWriter(&b).
		WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
		h.t.Fatal(err)
	}
	h.writeMember(b.Bytes(), 1)
}

// writeZeros writes mib MiB of zeros.
func (h *hostileArchive) writeZeros(mib int) { h.t.Helper(); h.writeMember(make([]byte, 1<<20), mib) }

// hostileArchives are archives by name, and the reason with which Fetch refuses each.
var hostileArchives = map[string]struct {
	write func(h *hostileArchive)
	want  Reason
}{
	"a file of 10 GiB": {func(h *hostileArchive) {
		h.writeHeader("big", 10<<30)
		h.writeZeros(10 << 10)
	}, TooLarge},
	"files of 3 GiB together": {func(h *hostileArchive) { writeLargeFiles(h) }, TooLarge},
	"10 GiB after the end": {func(h *hostileArchive) {
		h.writeMember(makeTar(h.t, file("x", "x")), 1)
		h.writeZeros(10 << 10)
	}, TooLarge},
	"a million files": {func(h *hostileArchive) { writeMillionFiles(h) }, TooManyFiles},
	"ten thousand levels": {func(h *hostileArchive) {
		h.writeMember(makeTar(h.t, file(strings.Repeat("d/", 10_000)+"f", "")), 1)
	}, TooDeep},
	"a name of a gigabyte":       {func(h *hostileArchive) { writeLongRecord(h, tar.TypeGNULongName) }, Malformed},
	"a PAX record of a gigabyte": {func(h *hostileArchive) { writeLongRecord(h, tar.TypeXHeader) }, Malformed},
	"a link to a path outside the tree": {func(h *hostileArchive) {
		h.writeMember(makeTar(h.t, member{name: "l", link: "/etc", kind: tar.TypeSymlink}, file("l/passwd", "x")), 1)
	}, UnsafePath},
	"links that combine to a path outside the tree": {func(h *hostileArchive) {
		h.writeMember(makeTar(h.t, member{name: "a", link: ".", kind: tar.TypeSymlink},
			member{name: "a/b", link: "..", kind: tar.TypeSymlink}), 1)
	}, UnsafePath},
	"a path outside the tree": {func(h *hostileArchive) {
		h.writeMember(makeTar(h.t, file("../../evil", "x")), 1)
	}, UnsafePath},
	"a truncated tarball": {func(h *hostileArchive) { h.writeHeader("f", 32<<20); h.writeZeros(16) }, Malformed},
	"gzip without a tarball": {func(h *hostileArchive) {
		h.writeMember(bytes.Repeat([]byte("no tarball. "), 1<<16), 64)
	}, Malformed},
	"not gzip": {func(h *hostileArchive) {
		_, _ = h.w.Write(bytes.Repeat([]byte("x"), 64<<20))
	}, Malformed},
	"a broken stream": {func(h *hostileArchive) {
		h.writeHeader("f", 8<<20)
		h.writeZeros(4)
		_, _ = h.w.Write([]byte("\x1f\x8b broken"))
	}, Malformed},
	"a wrong checksum": {func(h *hostileArchive) { writeBrokenChecksum(h) }, Malformed},
}

func writeLargeFiles(h *hostileArchive) {
	for i := range 60 {
		h.writeHeader(fmt.Sprintf("f%d", i), 50<<20)
		h.writeZeros(50)
	}
}

func writeMillionFiles(h *hostileArchive) {
	thousand := func(i int) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for j := range 1000 {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d/%d", i, j), Typeflag: tar.TypeReg,
				Mode: 0o644}); err != nil {
				h.t.Fatal(err)
			}
		}
		return b.Bytes()
	}
	// Fetch stops before the rest, so its names need not differ.
	for i := range 60 {
		h.writeMember(thousand(i), 1)
	}
	h.writeMember(thousand(60), 940)
}

// writeLongRecord writes a record of a gigabyte. A reader must read it before the entry that
// it describes.
func writeLongRecord(h *hostileArchive, kind byte) {
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
	h.writeMember(raw, 1)
	h.writeMember(bytes.Repeat([]byte("n"), 1<<20), 1<<10)
}

// writeBrokenChecksum writes a complete tarball with a wrong gzip checksum.
func writeBrokenChecksum(h *hostileArchive) {
	packed := compress(h.t, makeTar(h.t, file("a", strings.Repeat("a", 1<<20))))
	packed[len(packed)-8] ^= 1
	_, _ = h.w.Write(packed)
}

// A separate process fetches each hostile artifact with the default limits. Its memory never
// exceeds the documented peak, and it leaves nothing on the disk.
func TestHostileArtifactsStayBelowDocumentedMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reports the peak memory of a process")
	}
	maxPeak := int64(0)
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
			maxPeak = max(maxPeak, fetchInSubprocess(t, s.URL, "sha256:"+hex.EncodeToString(h.sum.Sum(nil)), c.want))
		})
	}
	t.Run("wrong digest", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { writeBody(w, 100) })
		maxPeak = max(maxPeak, fetchInSubprocess(t, s.URL, digestOf(nil), DigestMismatch))
	})
	t.Run("endless download", func(t *testing.T) {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { writeBody(w, 1<<20) })
		maxPeak = max(maxPeak, fetchInSubprocess(t, s.URL, digestOf(nil), TooLarge))
	})
	t.Logf("highest peak memory: %d MiB, documented: %d MiB", maxPeak>>20, documentedPeak()>>20)
}

// writeBody writes mib MiB, or less if the client closes the connection.
func writeBody(w http.ResponseWriter, mib int) {
	block := bytes.Repeat([]byte{0x1f, 0x8b}, 1<<19)
	for range mib {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func fetchInSubprocess(t *testing.T, url, digest string, want Reason) int64 {
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
	var got fetchResult
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Reason != want {
		t.Errorf("reason %q, want %q: %s", got.Reason, want, got.Message)
	}
	if len(got.Message) > 2000 {
		t.Errorf("a message of %d bytes", len(got.Message))
	}
	if got.Peak == 0 || got.Peak > documentedPeak() {
		t.Errorf("peak memory %d MiB, documented: %d MiB", got.Peak>>20, documentedPeak()>>20)
	}
	expectCachedTrees(t, dir)
	return got.Peak
}
