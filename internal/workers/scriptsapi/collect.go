package scriptsapi

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

// collectTimeout bounds a collection: uploads wait for it.
const collectTimeout = 2 * time.Minute

// maxDeleted is the maximum number of files that one collection deletes.
const maxDeleted = 1000

// Collect deletes the files that no WorkerDeployment, no WorkerRelease and no version refers to. It
// never deletes one that was put within Options.Keep. It returns the number of deleted files.
func (s *Server) Collect(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	before := s.opts.Clock.Now().Add(-s.opts.Keep)
	var old []filestore.Info
	for i, err := range s.opts.Files.All(ctx) {
		if err != nil {
			return 0, fmt.Errorf("listing the files: %w", err)
		}
		if i.Modified.Before(before) {
			old = append(old, i)
		}
	}
	// Uploads wait, so that a file of an upload is either younger, or referred to.
	s.collection.Lock()
	defer s.collection.Unlock()
	used, err := s.usedFiles(ctx, before)
	if err != nil {
		return 0, err
	}
	deleted := 0
	for _, i := range old {
		if used[i.SHA256] {
			continue
		}
		if deleted == maxDeleted {
			break
		}
		if err := s.opts.Files.Delete(ctx, i); err != nil {
			return deleted, fmt.Errorf("deleting file %s: %w", i.SHA256, err)
		}
		deleted++
	}
	return deleted, nil
}

// usedFiles returns the hashes of the files in use, after deleting the versions from before a time.
func (s *Server) usedFiles(ctx context.Context, before time.Time) (map[string]bool, error) {
	used, err := s.versions.expire(before)
	if err != nil {
		return nil, err
	}
	for kindName, path := range map[string][]string{"WorkerDeployment": {"spec", "template", "scriptUrls"},
		"WorkerRelease": {"spec", "scriptUrls"}} {
		objects, err := s.deployments.objects(ctx, kindName)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			urls, _, err := unstructured.NestedStringSlice(o.Object, path...)
			if err != nil {
				return nil, fmt.Errorf("%s %s/%s: %w", kindName, o.GetNamespace(), o.GetName(), err)
			}
			for _, u := range urls {
				if f, ok := filestore.ParseURL(u); ok {
					used[f.SHA256] = true
				}
			}
		}
	}
	return used, nil
}
