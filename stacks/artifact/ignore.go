package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// IgnoreFile is the name of files in a source that say what to leave out of its
// artifact, as for Flux. They are not part of the artifact themselves.
const IgnoreFile = ".sourceignore"

const (
	maxIgnoreBytes    = 64 << 10
	maxIgnorePatterns = 1000
)

// Ignore tells which files of a tree are left out of its artifact.
type Ignore struct {
	patterns []gitignore.Pattern
	matcher  gitignore.Matcher
}

// NewIgnore reads the patterns of all IgnoreFiles of a tree, and those of the
// spec, which come last: the last that fits counts. The error is an *Error.
func NewIgnore(ctx context.Context, fsys fs.FS, spec string) (*Ignore, error) {
	ig := &Ignore{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return readError(name, err)
		case ctx.Err() != nil:
			return failBy(Unreachable, context.Cause(ctx), "interrupted while looking for what to ignore")
		case d.Name() != IgnoreFile || !d.Type().IsRegular():
			return nil
		}
		return ig.read(fsys, name)
	})
	if err == nil {
		err = ig.add("spec.ignore", []byte(spec), nil)
	}
	if err != nil {
		return nil, err
	}
	ig.matcher = gitignore.NewMatcher(ig.patterns)
	return ig, nil
}

func (ig *Ignore) read(fsys fs.FS, name string) (err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return readError(name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err := io.ReadAll(io.LimitReader(f, maxIgnoreBytes+1))
	if err != nil {
		return readError(name, err)
	}
	if len(content) > maxIgnoreBytes {
		return fail(IgnoreInvalid, name, "it has more than %d bytes", maxIgnoreBytes)
	}
	var domain []string
	if dir := path.Dir(name); dir != "." {
		domain = strings.Split(dir, "/")
	}
	return ig.add(name, content, domain)
}

// add takes the patterns of a file, which hold below the folder domain.
func (ig *Ignore) add(where string, content []byte, domain []string) error {
	for number, line := range bytes.Split(content, []byte("\n")) {
		pattern := strings.TrimSuffix(string(line), "\r")
		if strings.TrimSpace(pattern) == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		if err := checkPattern(pattern); err != nil {
			return fail(IgnoreInvalid, where, "line %d, %.80q: %v", number+1, pattern, err)
		}
		if len(ig.patterns) == maxIgnorePatterns {
			return fail(IgnoreInvalid, where, "with line %d there are more than %d patterns", number+1, maxIgnorePatterns)
		}
		ig.patterns = append(ig.patterns, gitignore.ParsePattern(pattern, domain))
	}
	return nil
}

// checkPattern refuses what would never fit anything.
func checkPattern(pattern string) error {
	for part := range strings.SplitSeq(strings.TrimPrefix(pattern, "!"), "/") {
		if strings.Contains(part, "**") && part != "**" {
			return errors.New("** has to stand alone between slashes")
		}
		if _, err := path.Match(part, "x"); err != nil {
			return fmt.Errorf("%w: is a bracket not closed?", err)
		}
	}
	return nil
}

// Skips is true for a file or a folder that is left out. It fits PackOptions.
func (ig *Ignore) Skips(name string, d fs.DirEntry) bool {
	if path.Base(name) == IgnoreFile && !d.IsDir() {
		return true
	}
	return len(ig.patterns) > 0 && ig.matcher.Match(strings.Split(name, "/"), d.IsDir())
}
