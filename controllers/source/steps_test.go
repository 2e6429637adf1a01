package source

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

func TestFollowsBranch(t *testing.T) {
	r := newSourceTest(t)
	first := r.commit(map[string]string{"stack.yaml": "1", ".gitignore": "x", ".gitattributes": "x",
		"sub/.gitmodules": "x"})
	d := r.done()
	a := r.obj.Status.Artifact.DeepCopy()
	if want := "main@sha1:" + first; a.Revision != want || !strings.Contains(d.Message, want) {
		t.Errorf("revision %s, message %q, want %s", a.Revision, d.Message, want)
	}
	info, err := os.Stat(filepath.Join(r.dir, a.Path))
	if err != nil || a.Size == nil || info.Size() != *a.Size {
		t.Errorf("status: %s has %v bytes; file: %v, %v", a.Path, a.Size, info, err)
	}
	if !a.LastUpdateTime.Time.Equal(r.clock.Now()) || !strings.HasPrefix(a.Digest, "sha256:") ||
		a.URL != r.web.URL+"/"+a.Path {
		t.Errorf("artifact %+v", a)
	}
	if r.content("stack.yaml") != "1" || r.content(".gitignore") != "" || r.content(".gitattributes") != "" ||
		r.content("sub/.gitmodules") != "" {
		t.Error("the artifact has the wrong files")
	}

	second := r.commit(map[string]string{"stack.yaml": "2"})
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	r.done()
	b := r.obj.Status.Artifact
	if b.Revision != "main@sha1:"+second || b.Digest == a.Digest || !b.LastUpdateTime.Time.Equal(r.clock.Now()) {
		t.Errorf("artifact %+v after a push", b)
	}
	if got := r.content("stack.yaml"); got != "2" {
		t.Errorf("got %q", got)
	}
}

func TestUnchangedBranchCostsOneRequest(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	first := r.done()
	before := r.obj.DeepCopy()
	r.clock.SetTime(r.clock.Now().Add(time.Hour))
	var again reconcile.Done
	if n := r.requests(func() { again = r.done() }); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if !reflect.DeepEqual(before, r.obj) {
		t.Errorf("the status changed: %+v", r.obj.Status)
	}
	if first != again {
		t.Errorf("the outcome changed: %+v to %+v", first, again)
	}
}

func TestForcePushIsFollowedAndReported(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "1"})
	r.commit(map[string]string{"a": "2"})
	r.done()
	forced := r.commit(map[string]string{"a": "3"}, gitserver.Orphan())
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "main@sha1:"+forced {
		t.Errorf("revision %s", got)
	}
	if got := r.content("a"); got != "3" {
		t.Errorf("got %q", got)
	}
	if !slices.Equal(r.events, []string{appsv1.BranchRewrittenReason}) {
		t.Errorf("events %v", r.events)
	}
	r.commit(map[string]string{"a": "4"})
	r.commit(map[string]string{"a": "5"})
	r.done()
	if len(r.events) != 1 {
		t.Errorf("events after a fast-forward: %v", r.events)
	}
}

func TestPreviousArtifactIsKept(t *testing.T) {
	r := newSourceTest(t)
	var names []string
	for _, body := range []string{"1", "2", "3"} {
		r.commit(map[string]string{"a": body})
		r.done()
		names = append(names, filepath.Base(r.obj.Status.Artifact.Path))
	}
	kept := map[string]bool{}
	for _, name := range r.storedFiles() {
		kept[name] = true
	}
	if len(kept) != 2 || !kept[names[1]] || !kept[names[2]] {
		t.Errorf("stored %v, want the last two of %v", kept, names)
	}
}

func TestPinnedCommitCostsNoRequest(t *testing.T) {
	r := newSourceTest(t)
	id := r.commit(map[string]string{"a": "pinned"})
	r.commit(map[string]string{"a": "later"})
	r.obj.Spec.Git.Ref = &appsv1.GitRef{Commit: id}
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "sha1:"+id {
		t.Errorf("revision %s", got)
	}
	if got := r.content("a"); got != "pinned" {
		t.Errorf("got %q", got)
	}
	if n := r.requests(func() { r.done() }); n != 0 {
		t.Errorf("%d requests for a stored commit, want none", n)
	}
}

func TestFollowsTag(t *testing.T) {
	r := newSourceTest(t)
	first := r.commit(map[string]string{"a": "1"})
	r.tag("v1", first)
	second := r.commit(map[string]string{"a": "2"})
	r.obj.Spec.Git.Ref = &appsv1.GitRef{Tag: "v1"}
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "v1@sha1:"+first || r.content("a") != "1" {
		t.Errorf("revision %s with %q", got, r.content("a"))
	}
	if n := r.requests(func() { r.done() }); n != 1 {
		t.Errorf("%d requests for an unchanged tag, want 1", n)
	}
	r.tag("v1", second)
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "v1@sha1:"+second || r.content("a") != "2" {
		t.Errorf("moved tag: revision %s with %q", got, r.content("a"))
	}
	if !slices.Equal(r.events, []string{appsv1.TagMovedReason}) {
		t.Errorf("events %v", r.events)
	}
	r.obj.Spec.Git.Ref.Tag = "v2"
	if message := r.failed(string(git.TagNotFound)); !strings.Contains(message, `"v1"`) {
		t.Errorf("the error does not suggest the tag: %s", message)
	}
}

func TestFollowsSemVerRange(t *testing.T) {
	r := newSourceTest(t)
	first := r.commit(map[string]string{"a": "1"})
	r.tag("v1.9.0", first)
	r.obj.Spec.Git.Ref = &appsv1.GitRef{SemVer: "1.x"}
	r.done()
	second := r.commit(map[string]string{"a": "2"})
	r.tag("v1.10.0", second)
	r.tag("v2.0.0", r.commit(map[string]string{"a": "3"}))
	r.done()
	if got := r.obj.Status.Artifact.Revision; got != "v1.10.0@sha1:"+second || r.content("a") != "2" {
		t.Errorf("revision %s with %q", got, r.content("a"))
	}
	r.obj.Spec.Git.Ref.SemVer = ">=3"
	if message := r.failed(string(git.TagNotFound)); !strings.Contains(message, "v2.0.0") {
		t.Errorf("the error does not contain the highest version: %s", message)
	}
	r.obj.Spec.Git.Ref.SemVer = "about 1"
	r.stalled(string(git.SemVerInvalid))
}

func TestOtherBranchOfSameCommitIsNotFetched(t *testing.T) {
	r := newSourceTest(t)
	id := r.commit(map[string]string{"a": "a"})
	r.done()
	digest := r.obj.Status.Artifact.Digest
	if err := r.repo.SetBranch(t.Context(), "release@1", id); err != nil {
		t.Fatal(err)
	}
	r.obj.Spec.Git.Ref = &appsv1.GitRef{Branch: "release@1"}
	if n := r.requests(func() { r.done() }); n != 1 {
		t.Errorf("%d requests, want 1: the files are stored", n)
	}
	if a := r.obj.Status.Artifact; a.Revision != "release@1@sha1:"+id || a.Digest != digest {
		t.Errorf("artifact %+v", a)
	}
}

func TestRestartReusesIntactArtifact(t *testing.T) {
	damages := map[string]struct {
		damage   func(r *sourceTest) error
		requests int64
	}{
		"storage intact": {func(*sourceTest) error { return nil }, 1},
		"storage empty":  {func(r *sourceTest) error { return os.RemoveAll(filepath.Join(r.dir, Space)) }, 2},
		"artifact damaged": {func(r *sourceTest) error {
			return os.WriteFile(filepath.Join(r.dir, r.obj.Status.Artifact.Path), []byte("x"), 0o600)
		}, 2},
		"artifact truncated": {func(r *sourceTest) error {
			return os.Truncate(filepath.Join(r.dir, r.obj.Status.Artifact.Path), 10)
		}, 2},
		"partial file": {func(r *sourceTest) error {
			return os.WriteFile(filepath.Join(r.dir, "tmp-1"), []byte("x"), 0o600)
		}, 1},
	}
	for name, c := range damages {
		t.Run(name, func(t *testing.T) {
			r := newSourceTest(t)
			r.commit(map[string]string{"a": "a", "b/c": "c"})
			r.done()
			before := r.obj.Status.Artifact.DeepCopy()
			if err := c.damage(r); err != nil {
				t.Fatal(err)
			}
			r.start()
			if n := r.requests(func() { r.done() }); n != c.requests {
				t.Errorf("%d requests, want %d", n, c.requests)
			}
			if !reflect.DeepEqual(before, r.obj.Status.Artifact) {
				t.Errorf("was %+v, is %+v", before, r.obj.Status.Artifact)
			}
			if got := r.content("b/c"); got != "c" {
				t.Errorf("got %q", got)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "tmp-1")); err == nil {
				t.Error("the file of a killed process is not removed")
			}
		})
	}
}

func TestURLFollowsAdvertisedAddress(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	r.done()
	r.obj.Status.Artifact.URL = "http://earlier.example/" + r.obj.Status.Artifact.Path
	if n := r.requests(func() { r.done() }); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
	if got := r.content("a"); got != "a" {
		t.Errorf("got %q", got)
	}
}

func TestReportsLeftOutFiles(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"}, gitserver.Symlink("link", "/etc/passwd"))
	first := r.done()
	if !strings.Contains(first.Message, `"link"`) {
		t.Errorf("message %q", first.Message)
	}
	r.start()
	if again := r.done(); again != first {
		t.Errorf("the message changes: %+v, %+v", first, again)
	}
	if r.content("link") != "" || r.content("a") != "a" {
		t.Error("the artifact contains the link")
	}
}

func TestFinalizeRemovesArtifacts(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	r.done()
	for range 2 { // Finalize is idempotent
		out := r.Finalize(t.Context(), &reconcile.Request[*appsv1.KsctlSource]{Object: r.obj})
		if _, ok := out.(reconcile.Done); !ok {
			t.Errorf("got %+v", out)
		}
	}
	if left := r.storedFiles(); len(left) > 0 {
		t.Errorf("stored files: %v", left)
	}
}

func TestDesiredRefAndRevision(t *testing.T) {
	id := strings.Repeat("a", 40)
	for _, c := range []struct {
		ref  *appsv1.GitRef
		want desiredRef
	}{
		{nil, desiredRef{branch: "main"}},
		{&appsv1.GitRef{}, desiredRef{branch: "main"}},
		{&appsv1.GitRef{Branch: "x/y"}, desiredRef{branch: "x/y"}},
		{&appsv1.GitRef{Tag: "v1"}, desiredRef{tag: "v1"}},
		{&appsv1.GitRef{SemVer: "1.x"}, desiredRef{semver: "1.x"}},
		{&appsv1.GitRef{Commit: id}, desiredRef{commit: id}},
	} {
		if got := desiredRefOf(c.ref); got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.ref, got, c.want)
		}
	}
	for _, c := range []struct {
		choice resolvedRef
		want   string
	}{
		{resolvedRef{name: "main", commit: id}, "main@sha1:" + id},
		{resolvedRef{name: "x/y", commit: id}, "x/y@sha1:" + id},
		{resolvedRef{name: "at@sha1:x", commit: id}, "at@sha1:x@sha1:" + id},
		{resolvedRef{name: "", commit: id}, "sha1:" + id},
	} {
		got := c.choice.revision()
		if got != c.want || commitOf(got) != id {
			t.Errorf("%+v: revision %q of commit %q, want %q", c.choice, got, commitOf(got), c.want)
		}
	}
	for _, odd := range []string{"", "main", "main@", "main@sha256:" + id, "@"} {
		if got := commitOf(odd); got != "" {
			t.Errorf("%q is parsed as commit %q", odd, got)
		}
	}
	if got := describeLeftOut(7, []string{"a", "b"}); got != `"a", "b" and 5 more` {
		t.Errorf("got %q", got)
	}
}

func TestSubmodulesAreFetchedOnRequest(t *testing.T) {
	r := newSourceTest(t)
	lib, err := r.server.NewRepo(t.Context(), "lib")
	if err != nil {
		t.Fatal(err)
	}
	id, err := lib.Commit(t.Context(), map[string]string{"l": "lib"}, "x")
	if err != nil {
		t.Fatal(err)
	}
	r.commit(map[string]string{"a": "a", ".gitmodules": "[submodule \"sub\"]\n\tpath = sub\n\turl = ../lib.git\n"},
		gitserver.Submodule("sub", id))
	if d := r.done(); r.content("sub/l") != "" || !strings.Contains(d.Message, `"sub"`) {
		t.Errorf("submodule without recurseSubmodules: %q, %s", r.content("sub/l"), d.Message)
	}
	r.obj.Spec.Git.RecurseSubmodules = true
	if d := r.done(); r.content("sub/l") != "lib" || strings.Contains(d.Message, `"sub"`) {
		t.Errorf("got %q, %s", r.content("sub/l"), d.Message)
	}
	if n := r.requests(func() { r.done() }); n != 1 {
		t.Errorf("%d requests without a change, want 1", n)
	}
}
