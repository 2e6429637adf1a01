package convert

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/yaml"
)

// editedFolder is a file system in which the kustomization of a folder has other content. So the
// former tool's edits leave the repository as it is.
type editedFolder struct {
	filesys.FileSystem
	file string
	data []byte
	// ownSchema is true once a kustomization was read that may replace the OpenAPI schema.
	ownSchema bool
	// read is called with the name of each file; it may be nil.
	read func(string)
}

// ReadFile returns the edited kustomization, or another file as it is.
func (f *editedFolder) ReadFile(name string) (data []byte, err error) {
	if f.read != nil {
		f.read(filepath.Clean(name))
	}
	if data = f.data; filepath.Clean(name) != f.file {
		data, err = f.FileSystem.ReadFile(name)
	}
	if slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(name)) {
		f.ownSchema = f.ownSchema || bytes.Contains(data, []byte("openapi"))
	}
	return data, err
}

// Exists reports whether a file exists.
func (f *editedFolder) Exists(name string) bool {
	return filepath.Clean(name) == f.file || f.FileSystem.Exists(name)
}

// buildFolder builds the kustomization of a folder with the edits of Flux or Argo CD. Where there
// is none, generate returns it.
func buildFolder(dir string, generate func() (*types.Kustomization, error),
	edit func(*types.Kustomization), read func(string)) ([]map[string]any, error) {
	disk := filesys.MakeFsOnDisk()
	dir, err := filepath.EvalSymlinks(dir) // kustomize does, too
	if err != nil {
		return nil, err
	}
	file, kustomization, err := kustomizationIn(disk, dir)
	if err != nil {
		return nil, err
	}
	if kustomization == nil {
		file = filepath.Join(dir, konfig.DefaultKustomizationFileName())
		if kustomization, err = generate(); err != nil {
			return nil, err
		}
	}
	edit(kustomization)
	data, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, err
	}
	files := &editedFolder{FileSystem: disk, file: file, data: data, read: read}
	defer func() {
		if files.ownSchema { // the schema is global
			openapi.ResetOpenAPI()
			openapi.Schema()
		}
	}()
	return build(files, dir)
}

// kustomizationIn returns the kustomization of a folder, or nil if there is none.
func kustomizationIn(files filesys.FileSystem, dir string) (string, *types.Kustomization, error) {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		file := filepath.Join(dir, name)
		if !files.Exists(file) || files.IsDir(file) {
			continue
		}
		data, err := files.ReadFile(file)
		if err != nil {
			return "", nil, err
		}
		out := &types.Kustomization{}
		return file, out, yaml.Unmarshal(data, out)
	}
	return "", nil, nil
}

// build runs kustomize without plugins, as Flux and Argo CD do.
func build(files filesys.FileSystem, dir string) (objects []map[string]any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("kustomize panicked: %v", v)
		}
	}()
	built, err := krusty.MakeKustomizer(&krusty.Options{LoadRestrictions: types.LoadRestrictionsNone,
		PluginConfig: types.DisabledPluginConfig()}).Run(files, dir)
	if err != nil {
		return nil, err
	}
	return objectsOf(built)
}

func objectsOf(built resmap.ResMap) (out []map[string]any, err error) {
	for _, res := range built.Resources() {
		data, err := res.AsYAML()
		if err != nil {
			return nil, err
		}
		var object map[string]any
		if err := yaml.Unmarshal(data, &object); err != nil {
			return nil, err
		}
		out = append(out, object)
	}
	return out, nil
}

// buildObjects builds rendered objects with patches and images, as the post renderer of
// helm-controller does.
func buildObjects(objects []map[string]any, edit func(*types.Kustomization)) ([]map[string]any, error) {
	var text strings.Builder
	for _, o := range objects {
		data, err := yaml.Marshal(o)
		if err != nil {
			return nil, err
		}
		text.WriteString("---\n" + string(data))
	}
	kustomization := &types.Kustomization{Resources: []string{"objects.yaml"}}
	edit(kustomization)
	data, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, err
	}
	files := filesys.MakeFsInMemory()
	err = errors.Join(files.WriteFile("/objects.yaml", []byte(text.String())),
		files.WriteFile("/"+konfig.DefaultKustomizationFileName(), data))
	if err != nil {
		return nil, err
	}
	return build(files, "/")
}

// folderEntries returns the entries from which kustomize-controller generates the kustomization of
// a folder: manifests, and folders with a kustomization of their own. They are relative to dir.
func folderEntries(dir string) (files, folders []string, err error) {
	disk := filesys.MakeFsOnDisk()
	err = filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		rel, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name, _, _ := kustomizationIn(disk, file); name != "" {
				folders = append(folders, filepath.ToSlash(rel))
				return fs.SkipDir
			}
			return nil
		}
		if slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(file)) {
			files = append(files, filepath.ToSlash(rel))
		}
		return nil
	})
	return files, folders, err
}
