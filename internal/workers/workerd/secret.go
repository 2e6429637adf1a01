package workerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// DefaultPrefix is the prefix of the names under which scripts have the keys of their Secret.
const DefaultPrefix = "WASM_WORKER_"

// dataLink is the link in the folder of a mounted Secret that the kubelet replaces atomically.
const dataLink = "..data"

// maxVariable is the largest size of an environment variable on Linux, in bytes (MAX_ARG_STRLEN).
const maxVariable = 128<<10 - 1

// Secret is the content of a mounted Secret.
type Secret struct {
	keys   []string
	values map[string]string
	// Skipped are the keys that cannot be environment variables, with the reason.
	Skipped map[string]string
}

// ReadSecret reads the folder of a mounted Secret; a folder that does not exist has no keys. All
// values are of the same version of the Secret.
func ReadSecret(folder string) (*Secret, error) {
	s := &Secret{values: map[string]string{}, Skipped: map[string]string{}}
	// The link names the folder of a version, which is removed when there is a new one.
	resolved := folder
	if version, err := os.Readlink(filepath.Join(folder, dataLink)); err == nil {
		resolved = filepath.Join(folder, version)
	}
	entries, err := os.ReadDir(resolved)
	if errors.Is(err, fs.ErrNotExist) && resolved == folder {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a Secret: %w", err)
	}
	for _, e := range entries {
		key := e.Name()
		if strings.HasPrefix(key, "..") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(resolved, key))
		if err != nil {
			return nil, fmt.Errorf("reading a Secret: %w", err)
		}
		if strings.ContainsRune(string(content), 0) {
			s.Skipped[key] = "the value has a NUL byte"
			continue
		}
		s.keys = append(s.keys, key)
		s.values[key] = string(content)
	}
	slices.Sort(s.keys)
	return s, nil
}

// Bind returns the bindings of the keys, by their names for the script, and the environment
// variables with the values, which have names with another prefix. Keys with too large values are
// added to Skipped.
func (s *Secret) Bind(prefix, variables string) (bindings []Binding, env []string) {
	for i, key := range s.keys {
		variable := variables + strconv.Itoa(i)
		if size := len(variable) + len("=") + len(s.values[key]); size > maxVariable {
			s.Skipped[key] = fmt.Sprintf("the value has more than %d bytes", maxVariable-len(variable)-len("="))
			continue
		}
		bindings = append(bindings, Binding{Name: prefix + key, Variable: variable})
		env = append(env, variable+"="+s.values[key])
	}
	return bindings, env
}

// SecretVersion returns a text that changes when the content of a mounted Secret changes.
func SecretVersion(folder string) string {
	if version, err := os.Readlink(filepath.Join(folder, dataLink)); err == nil {
		return version
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return ""
	}
	var out strings.Builder
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(folder, e.Name())); err == nil {
			fmt.Fprintln(&out, e.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return out.String()
}
