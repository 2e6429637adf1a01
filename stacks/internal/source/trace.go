package source

import (
	"crypto/sha256"
	"encoding/base64"
	"io/fs"
	"strconv"
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
	t.entries[key] = value
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

func hashEntries(entries []fs.DirEntry) string {
	var b []byte
	for _, e := range entries {
		b = strconv.AppendQuote(b, e.Name())
		b = append(append(append(b, ' '), e.Type().String()...), '\n')
	}
	return hash(b)
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
		kind, name, _ := strings.Cut(key, " ")
		var got string
		switch kind + " " {
		case traceStat:
			info, _ := t.stat(name) //nolint:errcheck // info is nil in case of an error
			got = fileType(info)
		case traceFile:
			data, err := t.ReadRaw(name, MaxFile)
			if err != nil {
				return false
			}
			got = hash(data)
		case traceFolder:
			entries, err := t.ReadDir(name)
			if err != nil {
				return false
			}
			got = hashEntries(entries)
		}
		if got != want {
			return false
		}
	}
	return len(trace) > 0
}
