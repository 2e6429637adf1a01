package main

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/e2e/bench/report"
)

func TestLoadResults(t *testing.T) {
	dir := t.TempDir()
	now := report.Report{Commit: "abc", Machine: report.Machine{Processors: 2},
		Versions: map[string]string{"etcd": "v1"}}
	if r, err := loadResults(dir, now); err != nil || len(r.Done) != 0 {
		t.Fatalf("an empty folder: %+v, %v", r, err)
	}
	before := now
	before.Done = []string{jobs(options{scenarios: []string{"b"}})[0].title(report.Ours, 1)}
	before.Results = []report.Result{{Scenario: "b", Peer: report.Ours, Run: 1}}
	if err := writeResults(dir, before); err != nil {
		t.Fatal(err)
	}
	r, err := loadResults(dir, now)
	if err != nil || len(r.Results) != 1 || len(r.Done) != 1 {
		t.Fatalf("got %+v, %v", r, err)
	}
	// A completed job is not run again; running it would fail without a control plane.
	if err := runAndRecord(t.Context(), &r, options{}, jobs(options{scenarios: []string{"b"}})[0], report.Ours,
		1); err != nil || len(r.Results) != 1 {
		t.Errorf("a completed job was run again: %v", err)
	}
	more := now
	more.Versions = map[string]string{"argo-cd": "v3"}
	if r, err := loadResults(dir, more); err != nil || len(r.Versions) != 2 {
		t.Errorf("with another peer: %v, %v", r.Versions, err)
	}
	for want, other := range map[string]report.Report{
		"commit":          {Commit: "def", Machine: now.Machine, Versions: now.Versions},
		"machine":         {Commit: "abc", Versions: now.Versions},
		"another version": {Commit: "abc", Machine: now.Machine, Versions: map[string]string{"etcd": "v2"}},
	} {
		if _, err := loadResults(dir, other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("another %s: %v", want, err)
		}
	}
}
