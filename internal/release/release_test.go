package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTagDefaultsToVersion(t *testing.T) {
	r := &release{version: "1.2.3+build"}
	for repository, want := range map[string]string{
		"registry.example.com/controller":     "registry.example.com/controller:1.2.3_build",
		"registry.example.com/controller:dev": "registry.example.com/controller:dev",
		"127.0.0.1:5000/a/controller":         "127.0.0.1:5000/a/controller:1.2.3_build",
	} {
		got, err := r.tag(repository)
		if err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", repository, got, err)
		}
	}
	for _, repository := range []string{"", "UPPER", "a b"} {
		if got, err := r.tag(repository); err == nil {
			t.Errorf("%q: %s", repository, got)
		}
	}
}

func TestPrepareRejectsInvalidVersion(t *testing.T) {
	for _, version := range []string{"v1.2.3", "1.2", "latest", ""} {
		if err := (&release{version: version, out: t.TempDir()}).prepare(t.Context()); err == nil {
			t.Errorf("version %q: got no error", version)
		}
	}
}

func TestChecksumsMatchSha256sum(t *testing.T) {
	r := &release{out: t.TempDir()}
	for name, content := range map[string]string{"b": "x", "a": "", "pushed.txt": "y", "SHA256SUMS": "z"} {
		if err := os.WriteFile(filepath.Join(r.out, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.writeChecksums(); err != nil {
		t.Fatal(err)
	}
	want := "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n" +
		"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  b\n"
	if got, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS")); err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
}
