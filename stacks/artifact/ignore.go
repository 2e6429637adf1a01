package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// IgnoreFile is the name of files in a source that list what to exclude from its
// artifact, as in Flux. The artifact does not contain these files.
const IgnoreFile = ".sourceignore"

const (
	maxIgnoreBytes    = 64 << 10
	maxIgnorePatterns = 1000
)

// Ignore matches the files of a tree that are excluded from its artifact.
type Ignore struct {
	patterns []gitignore.Pattern
	matcher  gitignore.Matcher
}

// NewIgnore reads the patterns of all IgnoreFiles of a tree and, after them, those of the
// spec. The last matching pattern decides. The error is an *Error.
func NewIgnore(ctx context.Context, fsys fs.FS, spec string) (*Ignore, error) {
	ig := &Ignore{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return readError(name, err)
		case ctx.Err() != nil:
			return wrapError(Unreachable, context.Cause(ctx), "interrupted while reading the ignore patterns")
		case d.Name() != IgnoreFile || !d.Type().IsRegular():
			return nil
		}
		return ig.readFile(fsys, name)
	})
	if err == nil {
		err = ig.addPatterns("spec.ignore", spec, nil)
	}
	if err != nil {
		return nil, err
	}
	ig.matcher = gitignore.NewMatcher(ig.patterns)
	return ig, nil
}

func (ig *Ignore) readFile(fsys fs.FS, name string) (err error) {
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
		return newError(IgnoreInvalid, name, "the file has more than %d bytes", maxIgnoreBytes)
	}
	var domain []string
	if dir := path.Dir(name); dir != "." {
		domain = strings.Split(dir, "/")
	}
	return ig.addPatterns(name, string(content), domain)
}

// addPatterns adds the patterns of a file. They apply below the directory domain.
func (ig *Ignore) addPatterns(source, content string, domain []string) error {
	for number, line := range strings.Split(content, "\n") {
		pattern := strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(pattern) == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		if err := checkPattern(pattern); err != nil {
			return newError(IgnoreInvalid, source, "line %d, %.80q: %v", number+1, pattern, err)
		}
		if len(ig.patterns) == maxIgnorePatterns {
			return newError(IgnoreInvalid, source, "line %d exceeds the limit of %d patterns", number+1,
				maxIgnorePatterns)
		}
		ig.patterns = append(ig.patterns, gitignore.ParsePattern(pattern, domain))
	}
	return nil
}

// checkPattern refuses patterns that can never match.
func checkPattern(pattern string) error {
	for part := range strings.SplitSeq(strings.TrimPrefix(pattern, "!"), "/") {
		if strings.Contains(part, "**") && part != "**" {
			return errors.New("** must be a whole path element")
		}
		if _, err := path.Match(part, "x"); err != nil {
			return fmt.Errorf("%w: check for an unclosed bracket", err)
		}
	}
	return nil
}

// Skips is true for a file or directory that is excluded. It can be used as PackOptions.Skip.
func (ig *Ignore) Skips(name string, d fs.DirEntry) bool {
	if path.Base(name) == IgnoreFile && !d.IsDir() {
		return true
	}
	return len(ig.patterns) > 0 && ig.matcher.Match(strings.Split(name, "/"), d.IsDir())
}
