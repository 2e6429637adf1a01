package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert"
)

// Convert converts objects of Flux or Argo CD whose repository has the given files, or those in
// clusters/ of it if there are none. sources are the sources of that repository that no object
// shows. It returns the new files. An object that is refused is an error.
func Convert(ctx context.Context, files map[string]string, sources []string,
	objects ...convert.Object) (map[string]string, error) {
	dir, err := os.MkdirTemp("", "convert-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := WriteFiles(dir, files); err != nil {
		return nil, err
	}
	if len(objects) == 0 {
		if objects, err = convert.ReadFiles(dir, []string{filepath.Join(dir, "clusters")}); err != nil {
			return nil, err
		}
	}
	result, err := convert.Convert(ctx, convert.Options{Root: dir, Objects: objects, Sources: sources,
		Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
	if err != nil {
		return nil, err
	}
	for _, p := range result.Refused {
		err = errors.Join(err, fmt.Errorf("refused: %s", p))
	}
	out := map[string]string{}
	for name, content := range result.Files {
		out[name] = string(content)
	}
	return out, err
}

// WriteFiles writes files, by path below a folder.
func WriteFiles(dir string, files map[string]string) error {
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}
