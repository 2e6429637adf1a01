package main

import (
	"testing"
)

func TestTag(t *testing.T) {
	r := &release{version: "1.2.3+build"}
	for said, want := range map[string]string{
		"registry.example.com/controller":     "registry.example.com/controller:1.2.3_build",
		"registry.example.com/controller:dev": "registry.example.com/controller:dev",
		"127.0.0.1:5000/a/controller":         "127.0.0.1:5000/a/controller:1.2.3_build",
	} {
		got, err := r.tag(said)
		if err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", said, got, err)
		}
	}
	for _, said := range []string{"", "UPPER", "a b"} {
		if got, err := r.tag(said); err == nil {
			t.Errorf("%q: %s", said, got)
		}
	}
}

func TestAVersionIsSemver(t *testing.T) {
	for _, said := range []string{"v1.2.3", "1.2", "latest", ""} {
		if err := (&release{version: said, out: t.TempDir()}).prepare(t.Context()); err == nil {
			t.Errorf("%q is taken", said)
		}
	}
}
