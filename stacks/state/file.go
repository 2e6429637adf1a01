package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/problem"
)

// Form of a file.
type Form string

// Forms.
const (
	// ExportForm has several clusters and credentials, as `ksctl` exports them.
	ExportForm Form = "export"
	// DocumentForm is a cluster's document alone, as in ksctl's folder of states.
	DocumentForm Form = "document"
	// CredentialsForm is a cloud's credentials alone, as in ksctl's folder of those.
	CredentialsForm Form = "credentials"
)

// Keys of an export: those of ksctl's Go type, which has no names of its own for JSON.
const (
	clustersKey    = "Clusters"
	credentialsKey = "Credentials"
)

// File is what a file of ksctl holds.
type File struct {
	Form        Form
	Clusters    []*Cluster
	Credentials []*Credentials
}

// Parse reads a file; its name is for errors alone, which are *stacks.Error. One that is
// encrypted with SOPS is refused: it is to be decrypted first.
func Parse(name string, data []byte) (*File, error) {
	tree, err := decode(data)
	if err != nil {
		return nil, &problem.Error{File: name, Message: err.Error()}
	}
	f := &File{}
	if err := f.read(data, tree); err != nil {
		err.File = name
		return nil, err
	}
	return f, nil
}

// read fills the file from its bytes.
func (f *File) read(data []byte, tree any) *problem.Error {
	top, ok := tree.(object)
	if !ok {
		return wrong("", "it is no JSON object: want an export of ksctl, the state of a cluster, or credentials of a cloud")
	}
	if has(top, "sops") {
		return wrong("", "it is encrypted with SOPS, and was not decrypted")
	}
	_, clusters := top[clustersKey]
	_, credentials := top[credentialsKey]
	switch {
	case clusters || credentials:
		f.Form = ExportForm
		return f.readExport(data, top)
	case has(top, "cluster_name") || has(top, "cloud_infrastructure_state"):
		f.Form = DocumentForm
		return f.addCluster(data, top, "")
	case has(top, "cloud_provider"):
		f.Form = CredentialsForm
		return f.addCredentials(data, top, "")
	}
	e := wrong("", "it has none of Clusters, Credentials, cluster_name and cloud_provider: it is neither an export of ksctl, nor the state of a cluster, nor credentials of a cloud")
	for _, key := range slices.Sorted(maps.Keys(top)) {
		if e.Suggestion = problem.Nearest(key, []string{clustersKey, credentialsKey}); e.Suggestion != "" {
			break
		}
	}
	return e
}

func has(o object, key string) bool { _, ok := o[key]; return ok }

// wrong is an error about what a JSON pointer leads to.
func wrong(pointer, format string, args ...any) *problem.Error {
	message := fmt.Sprintf(format, args...)
	if pointer != "" {
		message = pointer + ": " + message
	}
	return &problem.Error{Field: pointer, Message: message}
}

// readExport reads the lists of an export. An entry that is null is none: ksctl exports
// the credentials of a local cluster so.
func (f *File) readExport(data []byte, top object) *problem.Error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return wrong("", "not JSON")
	}
	for _, part := range []struct {
		key string
		add func(data []byte, doc object, pointer string) *problem.Error
	}{{clustersKey, f.addCluster}, {credentialsKey, f.addCredentials}} {
		list, ok := top[part.key].([]any)
		if !ok && top[part.key] != nil {
			return wrong("/"+part.key, "it is no list")
		}
		var entries []json.RawMessage
		if len(list) > 0 {
			if err := json.Unmarshal(raw[part.key], &entries); err != nil {
				return wrong("/"+part.key, "it is no list")
			}
		}
		for i, v := range list {
			at := fmt.Sprintf("/%s/%d", part.key, i)
			if v == nil {
				continue
			}
			doc, ok := v.(object)
			if !ok {
				return wrong(at, "it is no object")
			}
			if err := part.add(entries[i], doc, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *File) addCluster(data []byte, doc object, pointer string) *problem.Error {
	c, err := newCluster(data, doc)
	if err != nil {
		return wrong(pointer, "not JSON")
	}
	f.Clusters = append(f.Clusters, c)
	return nil
}

func (f *File) addCredentials(data []byte, doc object, pointer string) *problem.Error {
	small, err := compact(data)
	if err != nil {
		return wrong(pointer, "not JSON")
	}
	c := &Credentials{Cloud: text(doc, "cloud_provider"), raw: small}
	if !valid(cloudName, c.Cloud) {
		return wrong(pointer+"/cloud_provider", "it names no cloud, such as aws")
	}
	f.Credentials = append(f.Credentials, c)
	return nil
}

// Format implements fmt.Formatter: a file is never printed.
func (f File) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "%s of %d clusters and %d credentials", f.Form, len(f.Clusters), len(f.Credentials))
}

// Credentials are those of a cloud, which only the first release exports. They are not
// changed, and may be shared.
type Credentials struct {
	Cloud string

	raw json.RawMessage
}

// JSON of the credentials: as they were read, without white space. They are secret.
func (c *Credentials) JSON() []byte { return c.raw }

// Format implements fmt.Formatter: credentials are never printed.
func (c Credentials) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "credentials of %s", c.Cloud)
}

// Export is a file of clusters and credentials, in the form that ksctl imports, sorted
// by key and by cloud so that the same content is the same file.
func Export(clusters []*Cluster, credentials []*Credentials) ([]byte, error) {
	out := struct {
		Clusters    []json.RawMessage
		Credentials []json.RawMessage
	}{Clusters: []json.RawMessage{}, Credentials: []json.RawMessage{}}
	byKey := func(a, b *Cluster) int { return strings.Compare(a.ID.Key(), b.ID.Key()) }
	for _, c := range slices.SortedStableFunc(slices.Values(clusters), byKey) {
		out.Clusters = append(out.Clusters, c.raw)
	}
	byCloud := func(a, b *Credentials) int { return strings.Compare(a.Cloud, b.Cloud) }
	for _, c := range slices.SortedStableFunc(slices.Values(credentials), byCloud) {
		out.Credentials = append(out.Credentials, c.raw)
	}
	return encode(out)
}
