package kustomize

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks/internal/source"
)

// Every kustomization in this repository builds to the same objects as with kustomize on disk.
func TestBuildMatchesKustomize(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	tree, err := source.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	built := 0
	for _, top := range []string{"config", "examples", "stacks/testdata/render/kustomize"} {
		err := fs.WalkDir(os.DirFS(root), top, func(file string, _ fs.DirEntry, err error) error {
			if err != nil || !slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(file)) {
				return err
			}
			if compareBuild(t, tree, root, filepath.Dir(file)) {
				built++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if built < 5 {
		t.Errorf("only %d kustomizations were compared", built)
	}
}

// compareBuild compares one build. It returns false for folders that do not build on their own,
// such as Components.
func compareBuild(t *testing.T, tree *source.Tree, root, dir string) bool {
	t.Helper()
	openapi.ResetOpenAPI() // as in a new process
	want, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(root, dir))
	openapi.ResetOpenAPI()
	openapi.Schema()
	got, ownErr := Build(t.Context(), tree, dir, nil, nil)
	if err != nil || ownErr != nil {
		if err == nil || ownErr == nil {
			t.Errorf("%s: kustomize returns %v, Build returns %v", dir, err, ownErr)
		}
		t.Logf("%s: %v", dir, ownErr)
		return false
	}
	if len(got) != want.Size() {
		t.Errorf("%s: %d objects, want %d", dir, len(got), want.Size())
		return false
	}
	for i, res := range want.Resources() {
		text, err := res.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		own, err := yaml.Marshal(got[i].Value)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := yaml.Unmarshal(text, &a); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(own, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: %s:\n got:\n%s\nwant:\n%s", dir, got[i], own, text)
		}
	}
	return true
}
