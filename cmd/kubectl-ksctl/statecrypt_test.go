//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is no regular file is written into, and stays what it is.
func TestWriteIntoAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // else whoever opens it waits for the other
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Close() }()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{pipe, link} {
		if err := (&target{file: name}).write(nil, "", []byte("sealed"), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(name)
		if err != nil || info.Mode() != os.ModeNamedPipe|0o600 {
			t.Fatalf("%s is now %v, %v", name, info.Mode(), err)
		}
		got := make([]byte, 10)
		if n, err := reader.Read(got); err != nil || string(got[:n]) != "sealed" {
			t.Errorf("got %q, %v", got[:n], err)
		}
	}
	if beside, err := os.ReadDir(filepath.Dir(pipe)); err != nil || len(beside) != 1 {
		t.Errorf("there is %v, %v", beside, err)
	}
}

// A link stays one, and what it leads to is replaced.
func TestWriteThroughALink(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	file, link := filepath.Join(elsewhere, "state.json"), filepath.Join(dir, "state.json")
	if err := os.WriteFile(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct {
		target
		from string
	}{{target{file: link}, ""}, {target{inPlace: true}, link}} {
		if err := to.write(nil, to.from, []byte("sealed "+to.from), 0o644); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(link)
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			t.Errorf("the link is now %v, %v", info.Mode(), err)
		}
		got, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(got, []byte("sealed "+to.from)) {
			t.Errorf("got %s, %v", got, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := (&target{file: link}).write(nil, "", []byte("sealed"), 0o644); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("got %v", err)
	}
	if err := (&target{file: dir}).write(nil, "", []byte("sealed"), 0o644); err == nil {
		t.Error("a folder was written")
	}
}
