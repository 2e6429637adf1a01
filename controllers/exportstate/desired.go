package exportstate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// maxFiles bounds the files of one export: each has a row in its status.
const maxFiles = 1000

// Parts of file names.
const (
	fileSuffix        = ".json"
	credentialsPrefix = "credentials."
)

// readDesired returns the entries of a store to export. An invalid entry does not block the others.
func (s *Steps) readDesired(spec *v1alpha1.ExportStateSpec, have statestore.Contents) (desired, error) {
	want := desired{hasClusters: have.HasStates, hasCredentials: spec.Credentials != v1alpha1.ExportCredentials ||
		have.HasCredentials}
	filter, recipients := statestore.FilterOf(spec.Select), slices.Sorted(slices.Values(spec.Recipients))
	hash := func(data []byte) string {
		return statestore.HashBytes(s.SecretKey,
			[]byte(statestore.HashDocument(s.SecretKey, data)+" "+strings.Join(recipients, " ")))
	}
	clouds := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(have.States)) {
		if id, ok := state.ParseKey(key); !ok || !filter.Matches(id) {
			if !ok && spec.Select == nil {
				want.documents = append(want.documents,
					invalidDocument(key, errors.New("the key is not a cluster key")))
			}
			continue
		}
		c, err := parseCluster(key, have.States[key])
		if err != nil {
			want.documents = append(want.documents, invalidDocument(key, err))
			continue
		}
		clouds[c.ID.Cloud] = true
		want.documents = append(want.documents,
			document{key: key, file: key + fileSuffix, data: c.JSON(), hash: hash(c.JSON())})
	}
	for _, cloud := range slices.Sorted(maps.Keys(have.Credentials)) {
		if spec.Select != nil && !clouds[cloud] {
			continue
		}
		c, err := state.ReadCredentials(cloud, have.Credentials[cloud])
		if err == nil && c.Cloud != cloud {
			err = errors.New("the entry contains the credentials of another cloud")
		}
		if err != nil {
			invalid := invalidDocument(cloud, err)
			invalid.file, invalid.credentials = credentialsPrefix+invalid.file, true
			want.documents = append(want.documents, invalid)
			continue
		}
		want.documents = append(want.documents, document{key: cloud, file: credentialsPrefix + cloud + fileSuffix,
			data: c.JSON(), hash: hash(c.JSON()), credentials: true})
	}
	if n := len(want.documents); n > maxFiles {
		return desired{}, reconcile.NewTerminalError(v1alpha1.InvalidStateReason,
			"the ksctl store has %d clusters and credentials, but an ExportState exports at most %d: select fewer "+
				"clusters, or use several ExportStates", n, maxFiles)
	}
	return want, nil
}

// parseCluster parses and validates an entry of the store, as an ImportState does.
func parseCluster(key string, data []byte) (*state.Cluster, error) {
	c, err := state.ReadCluster(key, data)
	if err != nil {
		return nil, err
	}
	if problems := c.Validate(); len(problems) > 0 {
		return nil, problems[0]
	}
	if c.ID.Key() != key {
		return nil, errors.New("the entry contains the state of another cluster")
	}
	return c, nil
}

// invalidDocument returns the document of an entry that cannot be exported.
func invalidDocument(key string, err error) document {
	return document{key: key, file: key + fileSuffix, action: v1alpha1.ExportInvalid,
		message: statestore.Truncate(err.Error(), 300)}
}

// isExport reports whether a file is an encrypted export of a cluster, or of the credentials of a
// cloud.
func isExport(data []byte, key string) bool {
	var fields struct {
		Cloud  string `json:"cloud_provider"`
		Type   string `json:"cluster_type"`
		Name   string `json:"cluster_name"`
		Region string `json:"region"`
	}
	if !sops.IsEncrypted(data, sops.JSON) || json.Unmarshal(data, &fields) != nil {
		return false
	}
	got := []string{fields.Cloud, fields.Type, fields.Name, fields.Region}
	want := []string{key, "", "", ""}
	if id, ok := state.ParseKey(key); ok {
		want = []string{id.Cloud, id.Type, id.Name, id.Region}
	}
	// An identifying field is encrypted, too, if the document has a possibly secret field with the
	// same name.
	return slices.EqualFunc(got, want, func(g, w string) bool {
		return g == w || strings.HasPrefix(g, "ENC[") && w != ""
	})
}
