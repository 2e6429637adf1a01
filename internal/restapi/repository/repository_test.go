package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/internal/restapi/manifests"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// fixture is a repository on a Git server, and a Repository for its folder apps.
type fixture struct {
	*testing.T
	server *gitserver.Server
	remote *gitserver.Repo
	repo   *Repository
}

func newFixture(t *testing.T, files map[string]string) *fixture {
	t.Helper()
	f := &fixture{T: t}
	f.server, f.remote = gitserver.ForTest(t, "fleet")
	f.commit(files)
	f.repo = f.open(f.remote.URL())
	return f
}

// open returns another Repository, as in another process.
func (f *fixture) open(url string) *Repository {
	f.Helper()
	r := New(Options{
		Client: git.NewClient(git.Options{TempDir: f.TempDir()}),
		Open:   func(context.Context) (git.Repository, error) { return git.Repository{URL: url}, nil },
		Branch: gitserver.DefaultBranch, Path: "apps",
	})
	f.Cleanup(func() {
		if err := r.Close(); err != nil {
			f.Error(err)
		}
	})
	return r
}

func (f *fixture) commit(files map[string]string) {
	f.Helper()
	if _, err := f.remote.Commit(f.Context(), files, "by another writer"); err != nil {
		f.Fatal(err)
	}
}

// git runs git in the bare repository.
func (f *fixture) git(args ...string) string {
	f.Helper()
	out, err := f.server.Git(context.WithoutCancel(f.Context()), f.remote.Dir(), args...)
	if err != nil {
		f.Fatal(err)
	}
	return out
}

func (f *fixture) file(name string) string { f.Helper(); return f.git("show", "main:"+name) }

func (f *fixture) commits() string { f.Helper(); return f.git("rev-list", "--count", "main") }

func keyOf(name string) manifests.Key {
	return manifests.Key{Kind: "ConfigMap", Namespace: "shop", Name: name}
}

func configMap(name, value string) string {
	return fmt.Sprintf("# About %s.\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: shop\n"+
		"data:\n  value: %s # the value\n", name, name, value)
}

// setValue returns a change of the value of a ConfigMap.
func setValue(name, value string) Change {
	return Change{Key: keyOf(name), Author: "Ann", Email: "ann@example.com",
		Edit: func(_ context.Context, present *manifests.Document) (*unstructured.Unstructured, error) {
			object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
			if present != nil {
				object = present.Object
			}
			object.SetName(name)
			object.SetNamespace("shop")
			return object, unstructured.SetNestedField(object.Object, value, "data", "value")
		}}
}

func remove(name string) Change {
	return Change{Key: keyOf(name), Edit: func(context.Context, *manifests.Document) (*unstructured.Unstructured,
		error) {
		return nil, nil
	}}
}

func (f *fixture) mustApply(c Change) Result {
	f.Helper()
	result, err := f.repo.Apply(f.Context(), c)
	if err != nil {
		f.Fatal(err)
	}
	return result
}

func TestApplyCommits(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/all.yaml": configMap("a", "1") + "---\n" + configMap("b", "1"),
		"README": "x"})
	change := setValue("a", "two")
	change.Trailer = "Requested-by: ann\x00"
	change.Message = "Raise the value\x00\r\n\nas discussed\n"
	result := f.mustApply(change)
	if !result.Changed || result.Commit != f.git("rev-parse", "main") || result.Document.File != "apps/all.yaml" {
		t.Errorf("got %+v", result)
	}
	if got, want := f.file("apps/all.yaml"), strings.TrimSuffix(configMap("a", "two")+"---\n"+configMap("b", "1"),
		"\n"); got != want {
		t.Errorf("got %s", got)
	}
	if got := f.git("log", "-1", "--format=%an <%ae> %cn%n%B", "main"); got !=
		"Ann <ann@example.com> Ann\nRaise the value\n\nas discussed\n\nRequested-by: ann\n" {
		t.Errorf("got %q", got)
	}
	doc, err := f.repo.Get(t.Context(), keyOf("a"))
	if err != nil || doc.Hash != result.Document.Hash {
		t.Errorf("got %v, %v", doc, err)
	}

	// The second change downloads nothing: it reads the branch, reads it for the push, and pushes.
	before := f.server.Requests()
	f.mustApply(setValue("new", "1"))
	if got := f.server.Requests() - before; got != 3 {
		t.Errorf("%d requests", got)
	}
	if got := f.git("log", "-1", "--format=%s", "main"); got != "Create ConfigMap shop/new" {
		t.Errorf("got %q", got)
	}
	if got := f.file("apps/shop-new.yaml"); !strings.Contains(got, `value: "1"`) {
		t.Errorf("got %s", got)
	}

	// Nothing differs.
	count := f.commits()
	if result := f.mustApply(setValue("new", "1")); result.Changed || result.Commit != "" || result.Document == nil {
		t.Errorf("got %+v", result)
	}
	if f.commits() != count {
		t.Error("there is a commit without a change")
	}

	f.mustApply(remove("a"))
	f.mustApply(remove("new"))
	if result := f.mustApply(remove("new")); result.Changed {
		t.Errorf("got %+v", result)
	}
	if got := f.git("ls-tree", "-r", "--name-only", "main"); got != "README\napps/all.yaml" {
		t.Errorf("got %s", got)
	}
	if got := f.file("apps/all.yaml"); got+"\n" != configMap("b", "1") {
		t.Errorf("got %s", got)
	}
	f.git("fsck", "--strict")
}

// The first commit of an empty repository is by a change, too.
func TestApplyToAnEmptyRepository(t *testing.T) {
	f := &fixture{T: t}
	f.server, f.remote = gitserver.ForTest(t, "fleet")
	f.repo = f.open(f.remote.URL())
	f.mustApply(setValue("a", "1"))
	f.mustApply(setValue("a", "2"))
	if got := f.git("log", "--format=%s", "main"); got != "Update ConfigMap shop/a\nCreate ConfigMap shop/a" {
		t.Errorf("got %s", got)
	}
}

func TestMissingBranchIsNotCreated(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1")})
	f.repo.options.Branch = "prod"
	_, get := f.repo.Get(t.Context(), keyOf("a"))
	_, apply := f.repo.Apply(t.Context(), setValue("b", "1"))
	for _, err := range []error{get, apply} {
		e, ok := errors.AsType[*git.Error](err)
		if !ok || e.Reason != git.BranchNotFound || !strings.Contains(e.Error(), "has no branch prod") {
			t.Errorf("got %v", err)
		}
	}
	if got := f.git("branch", "--format=%(refname:short)"); got != "main" {
		t.Errorf("branches %s", got)
	}
}

// 50 writers in two processes: half of them change documents of one file, the others create objects
// that one kustomization lists.
func TestConcurrentWritersLoseNothing(t *testing.T) {
	const writers = 50
	all, name := "", func(i int) string { return fmt.Sprintf("object-%02d", i) }
	for i := range writers / 2 {
		all += "---\n" + configMap(name(i), "old")
	}
	f := newFixture(t, map[string]string{"apps/all.yaml": all, "apps/kustomization.yaml": "resources: # all\n" +
		"- all.yaml\n"})
	processes := []*Repository{f.repo, f.open(f.remote.URL())}
	results, errs := make([]Result, writers), make([]error, writers)
	var running sync.WaitGroup
	for i := range writers {
		running.Go(func() {
			results[i], errs[i] = processes[i/2%2].Apply(t.Context(), setValue(name(i), fmt.Sprintf("new-%d", i)))
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	commits := map[string]bool{}
	for i, result := range results {
		commits[result.Commit] = true
		doc, err := f.repo.Get(t.Context(), keyOf(name(i)))
		if err != nil {
			t.Fatal(err)
		}
		value, _, err := unstructured.NestedString(doc.Object.Object, "data", "value")
		if err != nil || value != fmt.Sprintf("new-%d", i) || doc.Hash != result.Document.Hash {
			t.Errorf("%s has %s, %v", name(i), value, err)
		}
	}
	if len(commits) != writers || f.commits() != fmt.Sprint(writers+1) ||
		f.git("rev-list", "--count", "--min-parents=2", "main") != "0" {
		t.Errorf("%d commits of %d results", len(commits), writers)
	}
	if got := strings.Count(f.file("apps/all.yaml"), "# About"); got != writers/2 {
		t.Errorf("%d comments are left", got)
	}
	f.git("fsck", "--strict")
}

// A push of another object in between is kept, and the object is not edited again.
func TestLostPushIsMadeAgain(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1"), "apps/b.yaml": configMap("b", "1")})
	change, edits := setValue("a", "mine"), 0
	edit := change.Edit
	change.Edit = func(ctx context.Context, present *manifests.Document) (*unstructured.Unstructured, error) {
		edits++
		f.commit(map[string]string{"apps/b.yaml": configMap("b", "theirs")})
		return edit(ctx, present)
	}
	f.mustApply(change)
	if edits != 1 || f.file("apps/b.yaml")+"\n" != configMap("b", "theirs") ||
		f.file("apps/a.yaml")+"\n" != configMap("a", "mine") || f.commits() != "3" {
		t.Errorf("%d edits, %s commits: %s", edits, f.commits(), f.file("apps/b.yaml"))
	}
}

// A push of the same object in between makes Edit run again, or fails the precondition.
func TestLostPushOfTheSameObject(t *testing.T) {
	for _, ifMatch := range []bool{false, true} {
		f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1")})
		change, edits := setValue("a", "mine"), 0
		edit := change.Edit
		change.Edit = func(ctx context.Context, present *manifests.Document) (*unstructured.Unstructured, error) {
			if edits++; edits == 1 {
				f.commit(map[string]string{"apps/a.yaml": configMap("a", "theirs") + "  more: kept\n"})
			}
			return edit(ctx, present)
		}
		if !ifMatch {
			f.mustApply(change)
			if got := f.file("apps/a.yaml"); edits != 2 || got != configMap("a", "mine")+"  more: kept" {
				t.Errorf("%d edits: %s", edits, got)
			}
			continue
		}
		doc, err := f.repo.Get(t.Context(), keyOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		change.IfMatch = doc.Hash
		_, err = f.repo.Apply(t.Context(), change)
		if e, ok := errors.AsType[*PreconditionError](err); !ok || e.Hash == doc.Hash || e.Hash == "" || edits != 1 {
			t.Errorf("got %v after %d edits", err, edits)
		}
		if got := f.file("apps/a.yaml"); !strings.Contains(got, "theirs") {
			t.Errorf("got %s", got)
		}
	}
}

func TestIfMatch(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1")})
	doc, err := f.repo.Get(t.Context(), keyOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ object, ifMatch, hash string }{
		{"a", "wrong", doc.Hash}, {"none", "*", ""}, {"none", "wrong", ""},
	} {
		change := setValue(test.object, "2")
		change.IfMatch = test.ifMatch
		_, err := f.repo.Apply(t.Context(), change)
		if e, ok := errors.AsType[*PreconditionError](err); !ok || e.Hash != test.hash {
			t.Errorf("%+v: got %v", test, err)
		}
	}
	for _, match := range []string{doc.Hash, "*"} {
		change := setValue("a", "for "+match)
		change.IfMatch = match
		f.mustApply(change)
	}
}

func TestServerRefusesThePush(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1")})
	hook := filepath.Join(f.remote.Dir(), "hooks", "pre-receive")
	if err := os.MkdirAll(filepath.Dir(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	script := []byte("#!/bin/sh\necho changes need a review >&2\nexit 1\n")
	if err := os.WriteFile(hook, script, 0o700); err != nil { //nolint:gosec // git runs it
		t.Fatal(err)
	}
	head := f.git("rev-parse", "main")
	_, err := f.repo.Apply(t.Context(), setValue("a", "2"))
	if e, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(e.Error(), "changes need a review") {
		t.Errorf("got %v", err)
	}
	if f.git("rev-parse", "main") != head {
		t.Error("the branch moved")
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	// The credentials allow no push.
	f.git("config", "http.receivepack", "false")
	_, err = f.repo.Apply(t.Context(), setValue("a", "2"))
	if _, ok := errors.AsType[*RefusedError](err); !ok {
		t.Errorf("got %v", err)
	}
	f.git("config", "http.receivepack", "true")
	// The next change is not affected.
	f.mustApply(setValue("a", "2"))
}

func TestConflictsAreReported(t *testing.T) {
	f := newFixture(t, map[string]string{
		"apps/kustomization.yaml":      "resources: [base, s.yaml]\nnamePrefix: ''\npatches: [{path: patch.yaml}]\n",
		"apps/base/kustomization.yaml": "resources: [a.yaml]\n",
		"apps/base/a.yaml":             configMap("a", "1"),
		"apps/patch.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n" +
			"data: {value: x}\n",
		"apps/s.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: secret, namespace: shop}\n" +
			"data: {value: 'ENC[AES256_GCM,data:x]'}\n" +
			"sops: {mac: 'ENC[AES256_GCM,data:x]', lastmodified: '2026-01-01T00:00:00Z'}\n",
	})
	for name, file := range map[string]string{"a": "apps/kustomization.yaml", "secret": "apps/s.yaml"} {
		_, err := f.repo.Apply(t.Context(), setValue(name, "2"))
		if e, ok := errors.AsType[*manifests.ConflictError](err); !ok || e.File != file || e.NotFound {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err := f.repo.Get(t.Context(), keyOf("none"))
	if e, ok := errors.AsType[*manifests.ConflictError](err); !ok || !e.NotFound {
		t.Errorf("got %v", err)
	}
	if f.commits() != "1" {
		t.Error("there are commits")
	}
}

func TestEditErrorEndsTheChange(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1")})
	denied := errors.New("denied")
	_, err := f.repo.Apply(t.Context(), Change{Key: keyOf("a"),
		Edit: func(context.Context, *manifests.Document) (*unstructured.Unstructured, error) { return nil, denied }})
	if !errors.Is(err, denied) || f.commits() != "1" {
		t.Errorf("got %v", err)
	}
}

func TestCanceledChangeLeavesNoTrace(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1")})
	ctx, cancel := context.WithCancel(t.Context())
	change := setValue("a", "2")
	edit := change.Edit
	change.Edit = func(ctx context.Context, present *manifests.Document) (*unstructured.Unstructured, error) {
		// Another change waits for this one, and its request ends first.
		waiting, end := context.WithCancel(t.Context())
		end()
		if _, err := f.repo.Apply(waiting, setValue("a", "3")); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		cancel()
		return edit(ctx, present)
	}
	if _, err := f.repo.Apply(ctx, change); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := f.repo.Apply(ctx, change); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if f.commits() != "1" {
		t.Error("there is a commit")
	}
	f.mustApply(setValue("a", "4")) // the checkout of the canceled request is still usable
}

// A push whose response is lost is answered with its own commit, and is not made twice.
func TestLostResponseIsNotPushedTwice(t *testing.T) {
	for _, verb := range []string{"update", "remove"} {
		f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1"), "apps/b.yaml": configMap("b", "1")})
		var lost atomic.Int64
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "git-receive-pack") || lost.Add(1) > 1 {
				f.server.Handler().ServeHTTP(w, r)
				return
			}
			f.server.Handler().ServeHTTP(&httptest.ResponseRecorder{Body: &bytes.Buffer{}}, r)
			panic(http.ErrAbortHandler)
		}))
		f.repo = f.open(proxy.URL + "/fleet.git")
		change := setValue("a", "2")
		if verb == "remove" {
			change = remove("a")
		}
		doc, err := f.repo.Get(t.Context(), keyOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		change.IfMatch = doc.Hash
		result := f.mustApply(change)
		if !result.Changed || result.Commit != f.git("rev-parse", "main") || f.commits() != "2" || lost.Load() != 1 {
			t.Errorf("%s: got %+v, %s commits", verb, result, f.commits())
		}
		proxy.Close()
	}
}

// The attempts are bounded.
func TestAttemptsAreBounded(t *testing.T) {
	f := newFixture(t, map[string]string{"apps/a.yaml": configMap("a", "1")})
	f.repo.options.Attempts = 3
	change, edits := setValue("a", "mine"), 0
	edit := change.Edit
	change.Edit = func(ctx context.Context, present *manifests.Document) (*unstructured.Unstructured, error) {
		edits++
		f.commit(map[string]string{"apps/a.yaml": configMap("a", fmt.Sprintf("theirs-%d", edits))})
		return edit(ctx, present)
	}
	_, err := f.repo.Apply(t.Context(), change)
	if e, ok := errors.AsType[*AttemptsError](err); !ok || e.Attempts != 3 || edits != 3 {
		t.Errorf("got %v after %d edits", err, edits)
	}
}
