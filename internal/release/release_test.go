package main

import (
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
