package exportstate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/sops"
	"github.com/ksctl/gitops/stacks/state"
)

// maxFiles of one export: each has a line in its status.
const maxFiles = 1000

// Names of files.
const (
	suffix      = ".json"
	credentials = "credentials."
)

// gather finds what is to be exported of a store. What is wrong with one entry keeps no other
// back.
func (s *Steps) gather(spec *v1alpha1.ExportStateSpec, have statestore.Held) (wishes, error) {
	want := wishes{clusters: have.HasStates, credentials: spec.Credentials != v1alpha1.ExportCredentials || have.HasCredentials}
	filter, whom := statestore.FilterOf(spec.Select), slices.Sorted(slices.Values(spec.Recipients))
	sum := func(data []byte) string {
		return statestore.Sum(s.SecretKey, []byte(statestore.Hash(s.SecretKey, data)+" "+strings.Join(whom, " ")))
	}
	clouds := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(have.States)) {
		if id, ok := state.ParseKey(key); !ok || !filter.Fits(id) {
			if !ok && spec.Select == nil {
				want.refused = append(want.refused, refused(key, errors.New("that is no key of a cluster")))
			}
			continue
		}
		c, err := clusterOf(key, have.States[key])
		if err != nil {
			want.refused = append(want.refused, refused(key, err))
			continue
		}
		clouds[c.ID.Cloud] = true
		want.documents = append(want.documents, document{key: key, file: key + suffix, data: c.JSON(), sum: sum(c.JSON())})
	}
	for _, cloud := range slices.Sorted(maps.Keys(have.Credentials)) {
		if spec.Select != nil && !clouds[cloud] {
			continue
		}
		c, err := state.ReadCredentials(cloud, have.Credentials[cloud])
		if err == nil && c.Cloud != cloud {
			err = errors.New("they are of another cloud")
		}
		if err != nil {
			row := refused(cloud, err)
			row.File = credentials + row.File
			want.refusedCredentials = append(want.refusedCredentials, row)
			continue
		}
		want.documents = append(want.documents, document{key: cloud, file: credentials + cloud + suffix, data: c.JSON(), sum: sum(c.JSON()), credentials: true})
	}
	if n := len(want.documents) + len(want.refused) + len(want.refusedCredentials); n > maxFiles {
		return wishes{}, fail(InvalidStateReason, "ksctl's store has %d clusters and credentials, and an export takes %d: select fewer of them, or split them over several exports", n, maxFiles)
	}
	return want, nil
}

// clusterOf reads an entry of the store, as ImportState will read it.
func clusterOf(key string, data []byte) (*state.Cluster, error) {
	c, err := state.ReadCluster(key, data)
	if err != nil {
		return nil, err
	}
	if problems := c.Check(); len(problems) > 0 {
		return nil, problems[0]
	}
	if c.ID.Key() != key {
		return nil, errors.New("it is the state of another cluster")
	}
	return c, nil
}

// refused is the line of an entry that can't be exported.
func refused(key string, err error) v1alpha1.ExportedFile {
	return v1alpha1.ExportedFile{Key: key, File: key + suffix, Action: v1alpha1.ExportInvalid, Message: statestore.Clip(err.Error(), 300)}
}

// isExport is true for a file that is an encrypted export of a cluster, or of the credentials
// of a cloud.
func isExport(data []byte, key string) bool {
	var top struct {
		Cloud  string `json:"cloud_provider"`
		Type   string `json:"cluster_type"`
		Name   string `json:"cluster_name"`
		Region string `json:"region"`
	}
	if !sops.Encrypted(data, sops.JSON) || json.Unmarshal(data, &top) != nil {
		return false
	}
	got := []string{top.Cloud, top.Type, top.Name, top.Region}
	want := []string{key, "", "", ""}
	if id, ok := state.ParseKey(key); ok {
		want = []string{id.Cloud, id.Type, id.Name, id.Region}
	}
	// What names the cluster is encrypted, too, where something else is called so that may be secret.
	return slices.EqualFunc(got, want, func(g, w string) bool { return g == w || strings.HasPrefix(g, "ENC[") && w != "" })
}
