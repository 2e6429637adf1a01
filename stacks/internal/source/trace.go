package source

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

// What a trace says of a path.
const (
	traceStat   = "stat "
	traceFile   = "file "
	traceFolder = "folder "
)

// traceBytes of a hash are kept; it is compared with the same source's next version.
const traceBytes = 16

// trace remembers what was looked at and what was seen. It is safe for concurrent use.
type trace struct {
	mu   sync.Mutex
	seen map[string]string
}

func (t *trace) note(key, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen == nil {
		t.seen = map[string]string{}
	}
	t.seen[key] = value
}

func (t *trace) stat(name string, info fs.FileInfo) { t.note(traceStat+name, kindOf(info)) }

func (t *trace) file(name string, data []byte) { t.note(traceFile+name, hash(data)) }

func (t *trace) folder(name string, entries []fs.DirEntry) {
	t.note(traceFolder+name, hash([]byte(listing(entries))))
}

func kindOf(info fs.FileInfo) string {
	switch {
	case info == nil:
		return "none"
	case info.IsDir():
		return "folder"
	case info.Mode().IsRegular():
		return "file"
	}
	return "other"
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.RawURLEncoding.EncodeToString(sum[:traceBytes])
}

func listing(entries []fs.DirEntry) string {
	var b strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&b, "%q %s\n", e.Name(), e.Type())
	}
	return b.String()
}

// Trace is everything that was looked at so far and what was seen there. What is
// read from a tree in which all of it is the same is the same.
func (t *Tree) Trace() map[string]string {
	t.seen.mu.Lock()
	defer t.seen.mu.Unlock()
	out := make(map[string]string, len(t.seen.seen))
	for k, v := range t.seen.seen {
		name, isStat := strings.CutPrefix(k, traceStat)
		if _, read := t.seen.seen[traceFile+name]; isStat && read {
			continue // only what is there can be read
		}
		out[k] = v
	}
	return out
}

// Matches says whether everything of a trace is the same in this tree.
func (t *Tree) Matches(trace map[string]string) bool {
	for key, want := range trace {
		var got string
		if name, ok := strings.CutPrefix(key, traceStat); ok {
			info, _ := t.root.Stat(name) //nolint:errcheck // info is nil then
			got = kindOf(info)
		} else if name, ok := strings.CutPrefix(key, traceFile); ok {
			data, err := t.Stored(name, MaxFile)
			if err != nil {
				return false
			}
			got = hash(data)
		} else if name, ok := strings.CutPrefix(key, traceFolder); ok {
			entries, err := t.ReadDir(name)
			if err != nil {
				return false
			}
			got = hash([]byte(listing(entries)))
		}
		if got != want {
			return false
		}
	}
	return len(trace) > 0
}
