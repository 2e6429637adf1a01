package gitserver

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// File modes of Git tree entries.
const (
	modeFile       = "100644"
	modeExecutable = "100755"
	modeSymlink    = "120000"
	modeSubmodule  = "160000"
)

// fileChange writes or deletes one path in a commit.
type fileChange struct {
	path    string
	mode    string // "" deletes the path
	content []byte
}

// change describes a commit that is not written yet.
type change struct {
	branch  string
	message string
	time    time.Time // zero means now
	parent  string    // commit id; "" means the tip of the branch, or none for an orphan
	orphan  bool
	replace bool // the commit has no files but the entries
	entries []fileChange
}

// CommitOption modifies a commit.
type CommitOption func(*change)

// OnBranch adds the commit to a branch other than [DefaultBranch]. If the branch does not exist,
// the commit is its first and has no parent; use [Onto] to set one.
func OnBranch(branch string) CommitOption { return func(c *change) { c.branch = branch } }

// Onto sets the parent of the commit, and the branch moves to the new commit. With an ancestor of
// the branch's tip this is a force push.
func Onto(commit string) CommitOption { return func(c *change) { c.parent = commit } }

// At sets the time of a commit, so that the same files give the same commit id.
func At(t time.Time) CommitOption { return func(c *change) { c.time = t } }

// Orphan creates a commit without a parent and moves the branch to it.
func Orphan() CommitOption { return func(c *change) { c.orphan, c.parent = true, "" } }

// Delete removes files or whole folders.
func Delete(paths ...string) CommitOption {
	return func(c *change) {
		for _, path := range paths {
			c.entries = append(c.entries, fileChange{path: path})
		}
	}
}

// Executable adds an executable file.
func Executable(path, content string) CommitOption { return entry(path, modeExecutable, content) }

// Symlink adds a symbolic link. The target is not validated.
func Symlink(path, target string) CommitOption { return entry(path, modeSymlink, target) }

// Submodule adds a submodule entry (gitlink) at a commit. The test writes .gitmodules itself.
func Submodule(path, commit string) CommitOption { return entry(path, modeSubmodule, commit) }

func entry(path, mode, content string) CommitOption {
	return func(c *change) { c.entries = append(c.entries, fileChange{path, mode, []byte(content)}) }
}

// stream returns the input of git fast-import for the change. fast-import prints the commit's id.
func (c *change) stream() io.Reader {
	var b bytes.Buffer
	if c.time.IsZero() {
		c.time = time.Now()
	}
	now := c.time.Unix()
	fmt.Fprintf(&b, "commit refs/heads/%s\nmark :1\nauthor e2e <e2e@example.com> %d +0000\ncommitter e2e "+
		"<e2e@example.com> %d +0000\n", c.branch, now, now)
	writeData(&b, []byte(c.message))
	// Without a "from" line the commit has no parent, even if the branch exists.
	if c.parent != "" {
		fmt.Fprintf(&b, "from %s\n", c.parent)
	}
	if c.replace {
		fmt.Fprintln(&b, "deleteall")
	}
	for _, e := range c.entries {
		switch e.mode {
		case "":
			fmt.Fprintf(&b, "D %s\n", quote(e.path))
		case modeSubmodule:
			fmt.Fprintf(&b, "M %s %s %s\n", e.mode, e.content, quote(e.path))
		default:
			fmt.Fprintf(&b, "M %s inline %s\n", e.mode, quote(e.path))
			writeData(&b, e.content)
		}
	}
	fmt.Fprint(&b, "get-mark :1\ndone\n")
	return &b
}

func writeData(b *bytes.Buffer, content []byte) {
	fmt.Fprintf(b, "data %d\n", len(content))
	b.Write(content)
	b.WriteByte('\n')
}

// quote quotes a path for fast-import. The path may contain any byte except zero.
func quote(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}
