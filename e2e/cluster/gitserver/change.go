package gitserver

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
)

// Modes of files, as Git writes them.
const (
	modeFile       = "100644"
	modeExecutable = "100755"
	modeSymlink    = "120000"
	modeSubmodule  = "160000"
)

// entry is one path of a commit with its new content, or without one if it is
// to go.
type entry struct {
	path    string
	mode    string // "" deletes
	content []byte
}

// change is a commit to be made.
type change struct {
	branch  string
	message string
	time    time.Time // zero means now
	parent  string    // id; "" for none
	orphan  bool
	replace bool // the entries are all there will be
	entries []entry
}

// CommitOption changes what a commit does.
type CommitOption func(*change)

// OnBranch puts the commit on another branch than [DefaultBranch]. A branch
// that does not exist begins with it, without a parent; use [Onto] for one.
func OnBranch(branch string) CommitOption { return func(c *change) { c.branch = branch } }

// Onto makes another commit the parent, and moves the branch there: with an
// ancestor of the branch's tip that is a force push.
func Onto(commit string) CommitOption { return func(c *change) { c.parent = commit } }

// At sets the time of a commit, so that the same files get the same id again.
func At(t time.Time) CommitOption { return func(c *change) { c.time = t } }

// Orphan makes a commit without a parent and moves the branch to it.
func Orphan() CommitOption { return func(c *change) { c.orphan, c.parent = true, "" } }

// Delete removes files or whole folders.
func Delete(paths ...string) CommitOption {
	return func(c *change) {
		for _, path := range paths {
			c.entries = append(c.entries, entry{path: path})
		}
	}
}

// Executable adds an executable file.
func Executable(path, content string) CommitOption {
	return func(c *change) {
		c.entries = append(c.entries, entry{path: path, mode: modeExecutable, content: []byte(content)})
	}
}

// Symlink adds a symbolic link, to wherever target says.
func Symlink(path, target string) CommitOption {
	return func(c *change) {
		c.entries = append(c.entries, entry{path: path, mode: modeSymlink, content: []byte(target)})
	}
}

// Submodule adds a submodule that is at a commit. What .gitmodules says of it is
// up to the test.
func Submodule(path, commit string) CommitOption {
	return func(c *change) {
		c.entries = append(c.entries, entry{path: path, mode: modeSubmodule, content: []byte(commit)})
	}
}

// stream writes the change in the language of git fast-import, which answers
// with the commit's id.
func (c *change) stream() io.Reader {
	var b bytes.Buffer
	if c.time.IsZero() {
		c.time = time.Now()
	}
	now := c.time.Unix()
	fmt.Fprintf(&b, "commit refs/heads/%s\nmark :1\n", c.branch)
	fmt.Fprintf(&b, "author e2e <e2e@example.com> %d +0000\n", now)
	fmt.Fprintf(&b, "committer e2e <e2e@example.com> %d +0000\n", now)
	data(&b, []byte(c.message))
	// Without the line the commit has no parent, whatever the branch points to.
	if c.parent != "" {
		fmt.Fprintf(&b, "from %s\n", c.parent)
	}
	if c.replace {
		fmt.Fprintln(&b, "deleteall")
	}
	for _, e := range c.entries {
		if e.mode == "" {
			fmt.Fprintf(&b, "D %s\n", quote(e.path))
			continue
		}
		if e.mode == modeSubmodule {
			fmt.Fprintf(&b, "M %s %s %s\n", e.mode, e.content, quote(e.path))
			continue
		}
		fmt.Fprintf(&b, "M %s inline %s\n", e.mode, quote(e.path))
		data(&b, e.content)
	}
	fmt.Fprint(&b, "get-mark :1\ndone\n")
	return &b
}

func data(b *bytes.Buffer, content []byte) {
	fmt.Fprintf(b, "data %d\n", len(content))
	b.Write(content)
	b.WriteByte('\n')
}

// quote writes a path so that it may contain anything but a zero byte.
func quote(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}
