package scriptsapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ksctl/gitops/internal/atomicfile"
	"github.com/ksctl/gitops/internal/workers/filestore"
)

// revision is a script whose files are stored.
type revision struct {
	Format   string           `json:"format"`
	Files    []filestore.File `json:"files"`
	Metadata *metadata        `json:"metadata"`
	Size     int              `json:"size"`
}

// id returns what identifies the revision among those of the script: 32 hexadecimal digits. Texts
// of secrets are no part of it.
func (r *revision) id(account, script string) (string, error) {
	m := *r.Metadata
	m.Bindings = nil
	for _, b := range r.Metadata.Bindings {
		if b.Type == bindingSecret {
			b.Text = ""
		}
		m.Bindings = append(m.Bindings, b)
	}
	content, err := json.Marshal(revision{r.Format, r.Files, &m, r.Size})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(account + "/" + script + "\n" + string(content)))
	return hex.EncodeToString(sum[:16]), nil
}

func (r *revision) template() template {
	t := template{CompatibilityDate: r.Metadata.CompatibilityDate}
	for _, f := range r.Files {
		t.ScriptURLs = append(t.ScriptURLs, "/"+f.SHA256+"/"+f.Name)
	}
	return t
}

// maxVersions is the maximum number of versions of a script that are not deployed.
const maxVersions = 20

// versions are revisions that are not deployed yet, in a folder with a file for each.
type versions struct{ dir string }

func newVersions(dir string) (*versions, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of the versions: %w", err)
	}
	return &versions{dir}, nil
}

var versionPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

func (v *versions) folder(account, script string) string {
	return filepath.Join(v.dir, objectName(account, script))
}

func (v *versions) file(account, script, id string) string {
	return filepath.Join(v.folder(account, script), id+".json")
}

func (v *versions) put(account, script, id string, r *revision) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(v.folder(account, script), 0o700); err != nil {
		return err
	}
	if err := v.makeRoom(account, script); err != nil {
		return err
	}
	return atomicfile.Write(v.file(account, script, id), content, 0o600)
}

// makeRoom deletes the oldest versions of a script, so that another one can be added.
func (v *versions) makeRoom(account, script string) error {
	entries, err := os.ReadDir(v.folder(account, script))
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range infos[:max(len(infos)-maxVersions+1, 0)] {
		if err := os.Remove(filepath.Join(v.folder(account, script), info.Name())); err != nil {
			return err
		}
	}
	return nil
}

// get returns a version. The error is fs.ErrNotExist if there is none.
func (v *versions) get(account, script, id string) (*revision, error) {
	content, err := os.ReadFile(v.file(account, script, id))
	if err != nil {
		return nil, err
	}
	r := &revision{}
	if err := json.Unmarshal(content, r); err != nil {
		return nil, fmt.Errorf("reading version %s of %s: %w", id, objectName(account, script), err)
	}
	return r, nil
}

// deleteAll deletes the versions of a script.
func (v *versions) deleteAll(account, script string) error {
	return os.RemoveAll(v.folder(account, script))
}

// expire deletes the versions from before a time, and returns the hashes of the files of the
// others.
func (v *versions) expire(before time.Time) (map[string]bool, error) {
	used := map[string]bool{}
	names, err := filepath.Glob(filepath.Join(v.dir, "*", "*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(name)
		} else if err == nil && filepath.Ext(name) == ".json" {
			err = addFiles(used, name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return used, nil
}

// addFiles adds the hashes of the files of a version.
func addFiles(used map[string]bool, name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var r revision
	if err := json.Unmarshal(content, &r); err != nil {
		return fmt.Errorf("reading version %s: %w", name, err)
	}
	for _, f := range r.Files {
		used[f.SHA256] = true
	}
	return nil
}

// postVersion stores a script without deploying it.
func (s *Server) postVersion(r *request) (any, error) {
	u, release, err := s.receive(r)
	if err != nil {
		return nil, err
	}
	defer release()
	for _, b := range u.metadata.Bindings {
		if b.Type == bindingSecret {
			return nil, invalidf("binding %s is a secret, which a version can't have: set it with PUT "+
				"…/scripts/%s/secrets (wrangler secret put)", b.Name, r.script)
		}
	}
	unlock := s.lock(r.account)
	defer unlock()
	o, err := s.deployment(r)
	if err != nil {
		return nil, err
	}
	s.collection.RLock()
	defer s.collection.RUnlock()
	rev, err := s.store(r.Context(), u)
	if err != nil {
		return nil, err
	}
	id, err := rev.id(r.account, r.script)
	if err != nil {
		return nil, err
	}
	if err := s.versions.put(r.account, r.script, id, rev); err != nil {
		return nil, fmt.Errorf("storing a version: %w", err)
	}
	now := s.deployments.timestamp()
	return map[string]any{"id": hyphenate(id),
		"metadata":  map[string]any{"created_on": now, "modified_on": now, "source": "api"},
		"resources": map[string]any{"script": map[string]any{"etag": rev.template().etag(), "tag": o.tag()}}}, nil
}

func hyphenate(id string) string {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return id
	}
	return parsed.String()
}

// deploymentBody is a deployment: the versions that get the requests of a script.
type deploymentBody struct {
	ID          string              `json:"id,omitempty"`
	Source      string              `json:"source,omitempty"`
	Strategy    string              `json:"strategy"`
	CreatedOn   string              `json:"created_on,omitempty"`
	Annotations map[string]string   `json:"annotations"`
	Versions    []deploymentVersion `json:"versions"`
}

type deploymentVersion struct {
	VersionID  string  `json:"version_id"`
	Percentage float64 `json:"percentage"`
}

func newDeploymentBody(o *deployment) deploymentBody {
	id := hyphenate(o.version())
	return deploymentBody{ID: id, Source: "api", Strategy: "percentage", CreatedOn: o.modified(),
		Annotations: map[string]string{}, Versions: []deploymentVersion{{id, 100}}}
}

// listDeployments returns the deployment that a script has, and no former ones.
func (s *Server) listDeployments(r *request) (any, error) {
	o, err := s.deployment(r)
	if err != nil {
		return nil, err
	}
	out := []deploymentBody{}
	if o.version() != "" {
		out = append(out, newDeploymentBody(o))
	}
	return map[string]any{"deployments": out}, nil
}

// postDeployment deploys a version.
func (s *Server) postDeployment(r *request) (any, error) {
	var d deploymentBody
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxMetadata)).Decode(&d); err != nil {
		return nil, invalidf("the body is no JSON object with versions")
	}
	if len(d.Versions) != 1 || d.Versions[0].Percentage != 100 {
		return nil, invalidf("a deployment has one version with the percentage 100: gradual deployments are not " +
			"supported")
	}
	parsed, err := uuid.Parse(d.Versions[0].VersionID)
	id := hex.EncodeToString(parsed[:])
	if err != nil || !versionPattern.MatchString(id) {
		return nil, invalidf("version_id %q is no UUID", clip(d.Versions[0].VersionID))
	}
	unlock := s.lock(r.account)
	defer unlock()
	if _, err := s.deployment(r); err != nil {
		return nil, err
	}
	s.collection.RLock()
	defer s.collection.RUnlock()
	rev, err := s.versions.get(r.account, r.script, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, failf(http.StatusNotFound, codeVersionNotFound, "script %s has no version %s, or it expired: "+
			"upload it again", r.script, parsed)
	}
	if err != nil {
		return nil, err
	}
	o, err := s.publish(r.Context(), r.account, r.script, rev)
	if err != nil {
		return nil, err
	}
	return newDeploymentBody(o), nil
}
