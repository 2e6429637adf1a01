package convert

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
)

// directory adds plain manifests. Files whose objects have other sync waves are components of their
// own, in the order of the waves.
func (s *argoSource) directory() func() ([]map[string]any, error) {
	d := s.source.Directory
	if d == nil {
		d = &applicationDirectory{}
	}
	files, jsonnet, err := argoFiles(filepath.Join(s.c.work, s.dir), d)
	switch {
	case err != nil:
		return s.refuse(".directory", oneLine(err.Error(), s.c.work))
	case jsonnet != "":
		return s.refuse(".path", fmt.Sprintf("Jsonnet is not evaluated (%s); commit its output, and use it as "+
			"manifests",
			path.Join(s.dir, jsonnet)))
	case len(files) == 0:
		return s.refuse(".path", "there are no manifests in "+s.dir)
	}
	var objects []map[string]any
	waves := map[int][]string{}
	for _, file := range files {
		found, err := readDocuments(filepath.Join(s.c.work, s.dir, file))
		if err != nil {
			return s.refuse(".path", fmt.Sprintf("%s can't be read: "+
				"%s", path.Join(s.dir, file), oneLine(err.Error(), s.c.work)))
		}
		objects = append(objects, found...)
		wave := s.waveOf(file, found)
		waves[wave] = append(waves[wave], path.Join("../..", s.dir, file))
	}
	s.addWaves(waves, files)
	return func() ([]map[string]any, error) { return objects, nil }
}

func (s *argoSource) addWaves(waves map[int][]string, files []string) {
	if len(waves) == 1 && !hasOtherManifests(filepath.Join(s.c.work, s.dir), files) {
		for wave := range waves {
			waves[wave] = []string{path.Join("../..", s.dir) + "/"}
		}
	}
	for i, wave := range slices.Sorted(maps.Keys(waves)) {
		component := stacks.Component{Name: s.name(), Manifests: waves[wave]}
		if i > 0 {
			component.DependsOn = []string{s.v.components[len(s.v.components)-1].Name}
			component.Name = label(fmt.Sprintf("%s-%d", s.name(), i+1))
		}
		s.v.components = append(s.v.components, component)
	}
}

// waveOf returns the wave of a file: the first one of its objects.
func (s *argoSource) waveOf(file string, objects []map[string]any) int {
	first, several := 0, false
	for i, o := range objects {
		annotations, _ := nested(o, "metadata", "annotations").(map[string]any)
		text, _ := annotations[waveAnnotation].(string)
		wave, _ := strconv.Atoi(text)
		several = several || i > 0 && wave != first
		if i == 0 || wave < first {
			first = wave
		}
	}
	if several {
		s.v.note(s.field+".path", fmt.Sprintf("%s has objects of several sync waves, which are applied together; "+
			"split it",
			path.Join(s.dir, file)))
	}
	return first
}

// argoFiles returns the files of a folder that Argo CD applies, and the first one in Jsonnet.
func argoFiles(dir string, d *applicationDirectory) (files []string, jsonnet string, err error) {
	include, includeErr := globPattern(d.Include)
	exclude, excludeErr := globPattern(d.Exclude)
	if err := errors.Join(includeErr, excludeErr); err != nil {
		return nil, "", err
	}
	err = filepath.WalkDir(dir, func(file string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if file != dir && !d.Recurse {
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(dir, file)
		rel = filepath.ToSlash(rel)
		if err != nil || include != nil && !include.MatchString(rel) || exclude != nil && exclude.MatchString(rel) {
			return err
		}
		switch path.Ext(rel) {
		case ".jsonnet":
			jsonnet = cmp.Or(jsonnet, rel)
		case ".yaml", ".yml", ".json":
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if !bytes.Contains(data, []byte("+argocd:skip-file-rendering")) {
				files = append(files, rel)
			}
		}
		return nil
	})
	return files, jsonnet, err
}

// globPattern converts a glob of Argo CD, in which * matches slashes, too. It is nil for no glob.
func globPattern(glob string) (*regexp.Regexp, error) {
	if glob == "" {
		return nil, nil
	}
	if strings.ContainsAny(glob, `[]\!`) {
		return nil, fmt.Errorf("the glob %q has one of [ ] \\ !; write it with *, ? and {a,b} only", glob)
	}
	var b strings.Builder
	depth, unbalanced := 0, false
	for _, r := range glob {
		unbalanced = unbalanced || r == '}' && depth == 0
		switch {
		case r == '*':
			b.WriteString(".*")
		case r == '?':
			b.WriteString(".")
		case r == '{':
			depth++
			b.WriteString("(?:")
		case r == '}':
			depth--
			b.WriteString(")")
		case r == ',' && depth > 0:
			b.WriteString("|")
		default:
			b.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	pattern, err := regexp.Compile("^(?s:" + b.String() + ")$")
	if err != nil || unbalanced {
		return nil, fmt.Errorf("the glob %q can't be read; close each { with }", glob)
	}
	return pattern, nil
}

// readDocuments reads the objects of a file as kubectl does.
func readDocuments(file string) (out []map[string]any, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		var object map[string]any
		if err == nil {
			err = yaml.Unmarshal(doc, &object)
		}
		if err != nil {
			return nil, err
		}
		items, isList := object["items"].([]any)
		switch kind, _ := object["kind"].(string); {
		case isList && strings.HasSuffix(kind, "List"):
			for _, item := range items {
				if inner, ok := item.(map[string]any); ok {
					out = append(out, inner)
				}
			}
		case len(object) > 0:
			out = append(out, object)
		}
	}
}
