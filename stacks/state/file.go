package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/stacks/problem"
)

// Form is the kind of content of a file.
type Form string

// Forms.
const (
	// ExportForm is an export of ksctl, with several clusters and credentials.
	ExportForm Form = "export"
	// DocumentForm is the document of one cluster, as in the states folder of ksctl.
	DocumentForm Form = "document"
	// CredentialsForm is the credentials of one cloud, as in the credentials folder of ksctl.
	CredentialsForm Form = "credentials"
)

// Keys of an export. They are the field names of the Go type in ksctl, which has no json tags.
const (
	clustersKey    = "Clusters"
	credentialsKey = "Credentials"
)

// File is a parsed file of ksctl.
type File struct {
	Form        Form
	Clusters    []*Cluster
	Credentials []*Credentials
}

// Parse reads a file. The name is used for errors only, which are *stacks.Error. It refuses a file
// that is encrypted with SOPS: the caller decrypts it first.
func Parse(name string, data []byte) (*File, error) {
	tree, err := decode(data)
	if err != nil {
		return nil, problem.Errorf(name, 0, "%s", err)
	}
	f := &File{}
	if err := f.read(data, tree); err != nil {
		err.File = name
		return nil, err
	}
	return f, nil
}

// read sets the fields of f from the bytes of a file and the tree decoded from them.
func (f *File) read(data []byte, tree any) *problem.Error {
	top, ok := tree.(object)
	if !ok {
		return pointerError("",
			"not a JSON object: want an export of ksctl, the state of a cluster, or credentials of a cloud")
	}
	if hasKey(top, "sops") {
		return pointerError("", "the file is encrypted with SOPS and was not decrypted")
	}
	_, clusters := top[clustersKey]
	_, credentials := top[credentialsKey]
	switch {
	case clusters || credentials:
		f.Form = ExportForm
		return f.readExport(data, top)
	case hasKey(top, "cluster_name") || hasKey(top, "cloud_infrastructure_state"):
		f.Form = DocumentForm
		return f.addCluster(data, top, "")
	case hasKey(top, "cloud_provider"):
		f.Form = CredentialsForm
		return f.addCredentials(data, top, "")
	}
	e := pointerError("", "the file has none of the keys Clusters, Credentials, cluster_name and cloud_provider: "+
		"want an export of ksctl, the state of a cluster, or credentials of a cloud")
	for _, key := range slices.Sorted(maps.Keys(top)) {
		if e.Suggestion = problem.Nearest(key, []string{clustersKey, credentialsKey}); e.Suggestion != "" {
			break
		}
	}
	return e
}

func hasKey(o object, key string) bool { _, ok := o[key]; return ok }

// pointerError returns an error about the value at a JSON pointer; "" is the whole file.
func pointerError(pointer, format string, args ...any) *problem.Error {
	message := fmt.Sprintf(format, args...)
	if pointer != "" {
		message = pointer + ": " + message
	}
	return &problem.Error{Field: pointer, Message: message}
}

// readExport reads the lists of an export. It skips null entries: ksctl exports them for the
// credentials of a local cluster.
func (f *File) readExport(data []byte, top object) *problem.Error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return pointerError("", "not JSON")
	}
	for _, part := range []struct {
		key string
		add func(data []byte, doc object, pointer string) *problem.Error
	}{{clustersKey, f.addCluster}, {credentialsKey, f.addCredentials}} {
		list, ok := top[part.key].([]any)
		if !ok && top[part.key] != nil {
			return pointerError("/"+part.key, "not a list")
		}
		var entries []json.RawMessage
		if len(list) > 0 {
			if err := json.Unmarshal(raw[part.key], &entries); err != nil {
				return pointerError("/"+part.key, "not a list")
			}
		}
		for i, v := range list {
			at := fmt.Sprintf("/%s/%d", part.key, i)
			if v == nil {
				continue
			}
			doc, ok := v.(object)
			if !ok {
				return pointerError(at, "not an object")
			}
			if err := part.add(entries[i], doc, at); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *File) addCluster(data []byte, doc object, _ string) *problem.Error {
	f.Clusters = append(f.Clusters, newCluster(data, doc))
	return nil
}

func (f *File) addCredentials(data []byte, doc object, pointer string) *problem.Error {
	c := &Credentials{Cloud: stringAt(doc, "cloud_provider"), raw: compact(data)}
	if !cloudName.MatchString(c.Cloud) {
		return pointerError(pointer+"/cloud_provider", "not the name of a cloud, such as aws")
	}
	f.Credentials = append(f.Credentials, c)
	return nil
}

// Format implements fmt.Formatter. It prints counts only, no content.
func (f File) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "%s of %d clusters and %d credentials", f.Form, len(f.Clusters), len(f.Credentials))
}

// Credentials are the credentials of one cloud. Only v1 of ksctl exports them. The value is
// immutable and safe to share.
type Credentials struct {
	Cloud string

	raw json.RawMessage
}

// JSON returns the credentials as they were read, without white space. They are secret.
func (c *Credentials) JSON() []byte { return c.raw }

// Format implements fmt.Formatter. It prints the name of the cloud only.
func (c Credentials) Format(s fmt.State, _ rune) {
	_, _ = fmt.Fprintf(s, "credentials of %s", c.Cloud)
}

// Export returns a file of clusters and credentials in the form that ksctl imports. It sorts
// clusters by key and credentials by cloud, so that equal content has equal bytes.
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
