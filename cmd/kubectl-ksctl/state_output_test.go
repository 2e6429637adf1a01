//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Data is written into a pipe, and the pipe is not replaced by a regular file.
func TestWriteToPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // opening only one end of a pipe blocks
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, link} {
		if err := (&outputTarget{file: name}).write(nil, "", []byte("sealed"), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil || info.Mode() != os.ModeNamedPipe|0o600 {
			t.Fatalf("%s: mode after the write is %v, %v", name, info.Mode(), err)
		}
		got := make([]byte, 10)
		if n, err := reader.Read(got); err != nil || string(got[:n]) != "sealed" {
			t.Errorf("got %q, %v", got[:n], err)
		}
	}
	if beside, err := os.ReadDir(filepath.Dir(pipe)); err != nil || len(beside) != 1 {
		t.Errorf("files in the folder: %v, %v", beside, err)
	}
}

// The target of a link is replaced, and the link stays.
func TestWriteReplacesTargetOfLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	file, link := filepath.Join(elsewhere, "state.json"), filepath.Join(dir, "state.json")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct {
		outputTarget
		from string
	}{{outputTarget{file: link}, ""}, {outputTarget{inPlace: true}, link}} {
		if err := to.write(nil, to.from, []byte("sealed "+to.from), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(link)
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("mode of the link after the write is %v, %v", info.Mode(), err)
		}
		got, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, []byte("sealed "+to.from)) {
			t.Errorf("got %s, %v", got, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := (&outputTarget{file: link}).write(nil, "", []byte("sealed"), 0o644); err == nil ||
		!strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v", err)
	}
	if err := (&outputTarget{file: dir}).write(nil, "", []byte("sealed"), 0o644); err == nil {
		t.Error("got no error for a folder")
	}
}

// A file that is open as standard output or elsewhere is appended to, so that its content stays.
func TestWriteAppendsToOpenFile(t *testing.T) {
	open := func() (*os.File, string) {
		name := filepath.Join(t.TempDir(), "all.json")
		if err := os.WriteFile(name, []byte("before "), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f, name
	}
	out, outName := open()
	stderr, stderrName := open()
	defer func(was *os.File) { os.Stderr = was }(os.Stderr)
	os.Stderr = stderr
	other, otherName := open()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", other.Fd()), link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ to, file string }{{outName, outName}, {stderrName, stderrName}, {link, otherName}} {
		if _, err := os.Stat(c.to); err != nil {
			t.Skipf("no /proc here: %v", err)
		}
		if err := (&outputTarget{file: c.to}).write(out, "", []byte("sealed"), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(c.file); err != nil || string(got) != "before sealed" {
			t.Errorf("%s: content is %q, %v", c.to, got, err)
		}
	}
}

// --in-place rejects pipes: the data written to a pipe is not stored.
func TestInPlaceRequiresRegularFile(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = reader.Close(), writer.Close() }()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	opened, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	for _, name := range []string{pipe, fmt.Sprintf("/dev/fd/%d", writer.Fd())} {
		if _, err := os.Stat(name); err != nil {
			t.Skipf("no /dev/fd here: %v", err)
		}
		err := (&outputTarget{inPlace: true}).write(nil, name, []byte("sealed"), 0o644)
		if err == nil || !strings.Contains(err.Error(), "--in-place requires a regular file") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
