package stacks_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ksctl/gitops/stacks"
)

func TestRendererCachesByDigest(t *testing.T) {
	var renders atomic.Int32
	r := stacks.NewRenderer(stacks.RendererOptions{OnRender: func(stacks.Request, time.Duration, error) {
		renders.Add(1)
	}})
	req := caseRequest(t, "helm")
	rendered := mustRender(t, req)
	rendered.Trace = nil
	want := asJSON(t, rendered)
	for range 3 {
		result, err := r.Render(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if asJSON(t, result) != want {
			t.Error("the cached result differs from the rendered one")
		}
		// A caller may modify the result.
		result.Components[0].Objects[0].Manifest[0] = 'x'
	}
	if n := renders.Load(); n != 1 {
		t.Errorf("%d renders", n)
	}
	req.Install.Name = "another"
	if _, err := r.Render(t.Context(), req); err != nil || renders.Load() != 2 {
		t.Errorf("another install: %v, %d renders", err, renders.Load())
	}
}

// A commit that does not change any file that a render reads causes no render. Any other commit
// does, and the result is never stale, whether a file is changed, removed or added.
func TestRendererReusesResultsAcrossRevisions(t *testing.T) {
	for _, name := range goodCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := caseRequest(t, name)
			original := os.DirFS(req.Root)
			var files []string
			err := fs.WalkDir(original, ".", func(path string, e fs.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					files = append(files, path)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			renders := 0
			r := stacks.NewRenderer(stacks.RendererOptions{OnRender: func(stacks.Request, time.Duration, error) {
				renders++
			}})
			if _, err := r.Render(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			// A file that the chart ignores, one that is not a manifest, and one of a disabled
			// component.
			unread := []string{"old.yaml.bak", "README.md", "other.yaml"}
			revision := 0
			commit := func(change func(root string) error) bool {
				t.Helper()
				next := req
				revision++
				next.Root, next.Digest = t.TempDir(), fmt.Sprintf("sha256:%d", revision)
				if err := os.CopyFS(next.Root, original); err != nil {
					t.Fatal(err)
				}
				if err := change(next.Root); err != nil {
					t.Fatal(err)
				}
				before := renders
				got, gotErr := r.Render(t.Context(), next)
				want, wantErr := stacks.Render(t.Context(), next)
				want.Trace = nil
				if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || asJSON(t, got) != asJSON(t, want) {
					t.Errorf("got  %v %s\nwant %v %s", gotErr, asJSON(t, got), wantErr, asJSON(t, want))
				}
				rendered := renders > before
				// Render the first revision again, so that the next one is compared with it.
				req.Digest = fmt.Sprintf("sha256:back%d", revision)
				if _, err := r.Render(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				return rendered
			}
			if commit(func(string) error { return nil }) {
				t.Error("a revision without changes was rendered")
			}
			if commit(func(root string) error {
				return os.WriteFile(filepath.Join(root, "UNRELATED.yaml"), []byte("x"), 0o600)
			}) {
				t.Error("a change of an unrelated file caused a render")
			}
			for _, file := range files {
				if !commit(func(root string) error {
					f, err := os.OpenFile(filepath.Join(root, file), os.O_APPEND|os.O_WRONLY, 0o600)
					if err != nil {
						return err
					}
					if _, err := f.WriteString("\n# changed\n"); err != nil {
						return err
					}
					return f.Close()
				}) && !slices.Contains(unread, filepath.Base(file)) {
					t.Errorf("a change of %s caused no render", file)
				}
				commit(func(root string) error { return os.Remove(filepath.Join(root, file)) })
				commit(func(root string) error {
					return os.WriteFile(filepath.Join(root, filepath.Dir(file), "added.yaml"), []byte(configMap), 0o600)
				})
			}
		})
	}
}

// A canceled render is not cached.
func TestRendererDoesNotCacheCanceledRenders(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	renders := 0
	r := stacks.NewRenderer(stacks.RendererOptions{Render: func(ctx context.Context,
		_ stacks.Request) (stacks.Result, error) {
		renders++
		cancel()
		return stacks.Result{}, ctx.Err()
	}})
	if _, err := r.Render(ctx, stacks.Request{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := r.Render(t.Context(), stacks.Request{}); err != nil || renders != 2 {
		t.Errorf("%v after %d renders", err, renders)
	}
}

// A revision that reuses a result takes no additional space in the cache, so it does not evict the
// results of other installs.
func TestRendererRekeysEntryForNewRevision(t *testing.T) {
	req := caseRequest(t, "helm")
	results := map[string]stacks.Result{}
	for _, name := range []string{"one", "two"} {
		req.Install.Name = name
		results[name] = mustRender(t, req)
	}
	renders := func(cache int64, asked ...string) (n int) {
		r := stacks.NewRenderer(stacks.RendererOptions{CacheBytes: cache,
			Render: func(_ context.Context, req stacks.Request) (stacks.Result, error) {
				n++
				return results[req.Install.Name], nil
			}})
		for _, name := range asked {
			name, revision, _ := strings.Cut(name, "@")
			req.Install.Name, req.Digest = name, revision
			if _, err := r.Render(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	room := int64(64)
	for renders(room, "one@a", "two@a", "one@a", "two@a") != 2 {
		if room += 64; room > 1<<20 {
			t.Fatal("the results of two installs are never cached")
		}
	}
	if n := renders(room, "one@a", "two@a", "two@b", "one@b", "one@c", "two@c"); n != 2 {
		t.Errorf("%d renders of two installs that fit in the cache, want 2", n)
	}
}

func TestRendererEvictsLeastRecentlyUsed(t *testing.T) {
	renders := map[string]int{}
	r := stacks.NewRenderer(stacks.RendererOptions{CacheBytes: 300, Render: func(_ context.Context,
		req stacks.Request) (stacks.Result, error) {
		renders[req.Digest]++
		return stacks.Result{Digest: req.Digest, Warnings: []string{strings.Repeat(req.Digest, 100)}}, nil
	}})
	use := func(digest string) {
		if _, err := r.Render(t.Context(), stacks.Request{Digest: digest}); err != nil {
			t.Fatal(err)
		}
	}
	use("kept")
	for i := range 20 {
		use("kept")
		use(string(rune('a' + i)))
	}
	use("a")
	if renders["kept"] != 1 || renders["a"] != 2 {
		t.Errorf("renders: %v", renders)
	}
}

func TestRendererRecoversFromPanic(t *testing.T) {
	calls := 0
	r := stacks.NewRenderer(stacks.RendererOptions{Render: func(context.Context,
		stacks.Request) (stacks.Result, error) {
		if calls++; calls == 1 {
			panic("out of luck")
		}
		return stacks.Result{}, nil
	}})
	if _, err := r.Render(t.Context(), stacks.Request{}); err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("the error of a panic is %v", err)
	}
	if _, err := r.Render(t.Context(), stacks.Request{}); err != nil || calls != 2 {
		t.Errorf("an error must not be cached: %v, %d calls", err, calls)
	}
}
