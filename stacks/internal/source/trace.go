package source

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"strings"
	"sync"
)

// Prefixes of the keys of a trace, by what was read of a path.
const (
	traceStat   = "stat "
	traceFile   = "file "
	traceFolder = "folder "
)

// traceBytes is the length of the hashes. They are only compared with those of other revisions of
// the same source.
const traceBytes = 16

// trace records which paths were read and a hash of their content. It is safe for concurrent use.
type trace struct {
	mu      sync.Mutex
	entries map[string]string
}

func (t *trace) record(key, value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entries == nil {
		t.entries = map[string]string{}
	}
	t.entries[key] = value
}

func (t *trace) recordStat(name string, info fs.FileInfo) { t.record(traceStat+name, fileType(info)) }

func (t *trace) recordFile(name string, data []byte) { t.record(traceFile+name, hash(data)) }

func (t *trace) recordFolder(name string, entries []fs.DirEntry) {
	t.record(traceFolder+name, hash([]byte(listing(entries))))
}

func fileType(info fs.FileInfo) string {
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

// Trace returns the paths that were read so far, each with a hash of its content. The same reads
// from a tree that matches the trace return the same content.
func (t *Tree) Trace() map[string]string {
	t.trace.mu.Lock()
	defer t.trace.mu.Unlock()
	out := make(map[string]string, len(t.trace.entries))
	for k, v := range t.trace.entries {
		name, isStat := strings.CutPrefix(k, traceStat)
		if _, read := t.trace.entries[traceFile+name]; isStat && read {
			continue // the file entry implies that the file exists
		}
		out[k] = v
	}
	return out
}

// Matches returns true if all paths of a trace have the same content in this tree. An empty trace
// does not match.
func (t *Tree) Matches(trace map[string]string) bool {
	for key, want := range trace {
		var got string
		if name, ok := strings.CutPrefix(key, traceStat); ok {
			info, _ := t.root.Stat(name) //nolint:errcheck // info is nil in case of an error
			got = fileType(info)
		} else if name, ok := strings.CutPrefix(key, traceFile); ok {
			data, err := t.ReadRaw(name, MaxFile)
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
