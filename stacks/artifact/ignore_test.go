package artifact

import (
	"errors"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

func TestIgnoreExcludesMatchingFiles(t *testing.T) {
	tree := func(ignores map[string]string) fstest.MapFS {
		fsys := fstest.MapFS{}
		for _, name := range []string{"README.md", "docs/a.md", "stacks/app/stack.yaml", "stacks/app/a.md",
			"stacks/app/docs/b.txt", "ci/run.sh"} {
			fsys[name] = &fstest.MapFile{Data: []byte(name)}
		}
		for name, content := range ignores {
			fsys[name] = &fstest.MapFile{Data: []byte(content)}
		}
		return fsys
	}
	for name, c := range map[string]struct {
		files map[string]string
		spec  string
		left  []string
	}{
		"no patterns": {nil, "",
			[]string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/a.md", "stacks/app/docs/b.txt",
				"stacks/app/stack.yaml"}},
		"comments": {nil, "# README.md\n\n  \n",
			[]string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/a.md", "stacks/app/docs/b.txt",
				"stacks/app/stack.yaml"}},
		"everything but one directory": {nil, "/*\n!/stacks\n",
			[]string{"stacks/app/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"by extension": {nil, "*.md\r\n",
			[]string{"ci/run.sh", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"a directory anywhere": {nil, "docs/",
			[]string{"README.md", "ci/run.sh", "stacks/app/a.md", "stacks/app/stack.yaml"}},
		"a directory at the root": {nil, "/docs/",
			[]string{"README.md", "ci/run.sh", "stacks/app/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"two stars": {nil, "stacks/**/docs",
			[]string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/a.md", "stacks/app/stack.yaml"}},
		"file at the root": {map[string]string{".sourceignore": "ci\n*.md\n"}, "",
			[]string{"stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"file in a directory": {map[string]string{"stacks/.sourceignore": "*.md\n/README.md\n"}, "",
			[]string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"spec overrides file": {map[string]string{".sourceignore": "*.md\n"}, "!README.md",
			[]string{"README.md", "ci/run.sh", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"not below an excluded directory": {nil, "docs\n!docs/a.md",
			[]string{"README.md", "ci/run.sh", "stacks/app/a.md", "stacks/app/stack.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := tree(c.files)
			ig, err := NewIgnore(t.Context(), fsys, c.spec)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			record := &recordingFS{fsys, &names}
			if _, err := Pack(t.Context(), io.Discard, record, PackOptions{Skip: ig.Skips}); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(names, c.left) {
				t.Errorf("packed %q, want %q", names, c.left)
			}
		})
	}
}

// recordingFS records the names of opened files.
type recordingFS struct {
	fstest.MapFS
	names *[]string
}

func (r *recordingFS) Open(name string) (fs.File, error) {
	if info, ok := r.MapFS[name]; ok && !info.Mode.IsDir() {
		*r.names = append(*r.names, name)
	}
	return r.MapFS.Open(name)
}

func TestIgnoreRejectsInvalidPatterns(t *testing.T) {
	many := strings.Repeat("a\n", maxIgnorePatterns)
	for name, c := range map[string]struct{ file, spec, says string }{
		"unclosed bracket":           {"", "a\n[b", `"spec.ignore": line 2, "[b"`},
		"unclosed bracket in a file": {"x/[\n", "", `".sourceignore": line 1`},
		"two stars in an element":    {"", "a/b**", "whole path element"},
		"a long file":                {strings.Repeat("#", maxIgnoreBytes+1), "", "bytes"},
		"too many":                   {many, "one more", "spec.ignore"},
	} {
		_, err := NewIgnore(t.Context(), fstest.MapFS{IgnoreFile: {Data: []byte(c.file)}}, c.spec)
		e := (*Error)(nil)
		if !errors.As(err, &e) || e.Reason != IgnoreInvalid || !e.Terminal() || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", name, err, c.says)
		}
	}
}

func FuzzIgnore(f *testing.F) {
	f.Add("*.md\n!/a/**/b\n#x\n", "a/b/c")
	f.Add("/*\n!/deploy", "deploy/x")
	f.Fuzz(func(t *testing.T, patterns, name string) {
		ig, err := NewIgnore(t.Context(), fstest.MapFS{}, patterns)
		if err == nil && name != "" {
			ig.Skips(name, fakeEntry{})
		}
	})
}

type fakeEntry struct{ fs.DirEntry }

func (fakeEntry) IsDir() bool { return false }
