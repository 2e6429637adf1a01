package stacks

import (
	"path"
	"strings"

	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// readManifests reads files and folders of plain manifests.
func (r *renderRun) readManifests(c *Component) ([]*manifest.Object, error) {
	var files []string
	for _, rel := range c.Manifests {
		clean, err := source.Clean(r.def.dir, rel)
		if err != nil {
			return nil, err
		}
		if !r.tree.IsDir(clean) {
			files = append(files, clean)
			continue
		}
		below, err := r.tree.Files(clean, nil)
		if err != nil {
			return nil, err
		}
		for _, file := range below {
			switch strings.ToLower(path.Ext(file)) {
			case ".yaml", ".yml", ".json":
				files = append(files, file)
			}
		}
	}
	var out []*manifest.Object
	var errs Errors
	for _, file := range files {
		data, err := r.tree.Read(file, source.MaxFile)
		if err != nil {
			return nil, err
		}
		objects, err := manifest.Parse(file, data)
		errs.Add(checkGenerateName(c, objects))
		errs.Add(err)
		out = append(out, objects...)
	}
	return out, errs.Err()
}
