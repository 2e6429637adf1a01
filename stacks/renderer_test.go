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

func TestRendererRendersOnce(t *testing.T) {
	var renders atomic.Int32
	r := stacks.NewRenderer(stacks.RendererOptions{OnRender: func(stacks.Request, time.Duration, error) { renders.Add(1) }})
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
			t.Error("what is remembered differs from what is rendered")
		}
		// The result is the caller's own.
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

// A commit that changes nothing that a render reads costs no render; any other does,
// and never is something old returned: whichever file is changed, removed or added.
func TestRendererAcrossRevisions(t *testing.T) {
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
			r := stacks.NewRenderer(stacks.RendererOptions{OnRender: func(stacks.Request, time.Duration, error) { renders++ }})
			if _, err := r.Render(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			// Ignored by the chart, not a manifest, of a disabled component.
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
				// Back to the first, so that it is what the next is compared with.
				req.Digest = fmt.Sprintf("sha256:back%d", revision)
				if _, err := r.Render(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				return rendered
			}
			if commit(func(string) error { return nil }) {
				t.Error("nothing changed, and it was rendered")
			}
			if commit(func(root string) error {
				return os.WriteFile(filepath.Join(root, "UNRELATED.yaml"), []byte("x"), 0o600)
			}) {
				t.Error("an unrelated file changed, and it was rendered")
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
					t.Errorf("%s changed, and it was not rendered", file)
				}
				commit(func(root string) error { return os.Remove(filepath.Join(root, file)) })
				commit(func(root string) error {
					return os.WriteFile(filepath.Join(root, filepath.Dir(file), "added.yaml"), []byte(configMap), 0o600)
				})
			}
		})
	}
}

// A render that its caller gives up is not remembered.
func TestRendererCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	renders := 0
	r := stacks.NewRenderer(stacks.RendererOptions{Render: func(ctx context.Context, _ stacks.Request) (stacks.Result, error) {
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

// What a revision did not change takes no second place in the cache: nobody else
// is forgotten for it, in whichever order installs come.
func TestRendererMovesOn(t *testing.T) {
	req := caseRequest(t, "helm")
	renders := func(cache int64, asked ...string) (n int) {
		r := stacks.NewRenderer(stacks.RendererOptions{CacheBytes: cache, OnRender: func(stacks.Request, time.Duration, error) { n++ }})
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
			t.Fatal("two installs are never remembered")
		}
	}
	if n := renders(room, "one@a", "two@a", "two@b", "one@b", "one@c", "two@c"); n != 2 {
		t.Errorf("%d renders of two installs that there is room for", n)
	}
}

func TestRendererForgets(t *testing.T) {
	renders := map[string]int{}
	r := stacks.NewRenderer(stacks.RendererOptions{CacheBytes: 300, Render: func(_ context.Context, req stacks.Request) (stacks.Result, error) {
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

func TestRendererSurvives(t *testing.T) {
	calls := 0
	r := stacks.NewRenderer(stacks.RendererOptions{Render: func(context.Context, stacks.Request) (stacks.Result, error) {
		if calls++; calls == 1 {
			panic("out of luck")
		}
		return stacks.Result{}, nil
	}})
	if _, err := r.Render(t.Context(), stacks.Request{}); err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("a panic became %v", err)
	}
	if _, err := r.Render(t.Context(), stacks.Request{}); err != nil || calls != 2 {
		t.Errorf("an error must not be remembered: %v, %d calls", err, calls)
	}
}
