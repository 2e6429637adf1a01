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

func TestIgnore(t *testing.T) {
	tree := func(ignores map[string]string) fstest.MapFS {
		fsys := fstest.MapFS{}
		for _, name := range []string{"README.md", "docs/a.md", "stacks/app/stack.yaml", "stacks/app/a.md", "stacks/app/docs/b.txt", "ci/run.sh"} {
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
		"nothing":             {nil, "", []string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"comments":            {nil, "# README.md\n\n  \n", []string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"everything but one":  {nil, "/*\n!/stacks\n", []string{"stacks/app/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"by ending":           {nil, "*.md\r\n", []string{"ci/run.sh", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"a folder anywhere":   {nil, "docs/", []string{"README.md", "ci/run.sh", "stacks/app/a.md", "stacks/app/stack.yaml"}},
		"a folder at the top": {nil, "/docs/", []string{"README.md", "ci/run.sh", "stacks/app/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"two stars":           {nil, "stacks/**/docs", []string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/a.md", "stacks/app/stack.yaml"}},
		"in the tree":         {map[string]string{".sourceignore": "ci\n*.md\n"}, "", []string{"stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"in a folder":         {map[string]string{"stacks/.sourceignore": "*.md\n/README.md\n"}, "", []string{"README.md", "ci/run.sh", "docs/a.md", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"the spec is last":    {map[string]string{".sourceignore": "*.md\n"}, "!README.md", []string{"README.md", "ci/run.sh", "stacks/app/docs/b.txt", "stacks/app/stack.yaml"}},
		"not below a folder":  {nil, "docs\n!docs/a.md", []string{"README.md", "ci/run.sh", "stacks/app/a.md", "stacks/app/stack.yaml"}},
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
				t.Errorf("left are %q, want %q", names, c.left)
			}
		})
	}
}

// recordingFS notes which files are read.
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

func TestIgnoreRefuses(t *testing.T) {
	many := strings.Repeat("a\n", maxIgnorePatterns)
	for name, c := range map[string]struct{ file, spec, says string }{
		"a bracket":        {"", "a\n[b", `"spec.ignore": line 2, "[b"`},
		"a bracket inside": {"x/[\n", "", `".sourceignore": line 1`},
		"a glued star":     {"", "a/b**", "stand alone"},
		"a long file":      {strings.Repeat("#", maxIgnoreBytes+1), "", "bytes"},
		"too many":         {many, "one more", "spec.ignore"},
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
