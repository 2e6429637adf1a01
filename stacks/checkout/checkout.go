// Package checkout reads and validates a working copy of a repository: all of its stacks and
// installs, and the folders that Flux and Argo CD sync from it. It needs no cluster.
package checkout

import (
	"bytes"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/source"
)

// Checkout is a working copy of a repository with its stacks and installs.
type Checkout struct {
	root string
	tree *source.Tree

	// Stacks are the paths of stack files.
	Stacks []string
	// Installs in the order of their files.
	Installs []Install

	// configMaps are the data of the ConfigMaps by namespace/name.
	configMaps  map[string]map[string]any
	syncedPaths []syncedPath
	problems    stacks.Errors
}

// Open reads a working copy. The caller closes it.
func Open(root string) (*Checkout, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	c := &Checkout{root: root, tree: tree, configMaps: map[string]map[string]any{}}
	files, err := tree.Files(".", func(name string, info fs.FileInfo) bool {
		return info.IsDir() && (strings.HasPrefix(path.Base(name), ".") || path.Base(name) == "node_modules")
	})
	if err != nil {
		tree.Close()
		return nil, err
	}
	for _, file := range files {
		if path.Base(file) == stacks.FileName {
			c.Stacks = append(c.Stacks, file)
			continue
		}
		switch strings.ToLower(path.Ext(file)) {
		case ".yaml", ".yml", ".json":
			c.readManifest(file)
		}
	}
	return c, nil
}

// Close releases the working copy. The error is always nil.
func (c *Checkout) Close() error {
	c.tree.Close()
	return nil
}

// relevantKinds are the kinds that Open reads. Files without any of these names are not parsed.
var relevantKinds = [][]byte{[]byte(installKind), []byte("ConfigMap"), []byte("Kustomization"), []byte("Application")}

// readManifest reads the objects of relevant kinds in a file.
func (c *Checkout) readManifest(file string) {
	data, err := c.tree.Read(file, source.MaxFile)
	if err != nil || !slices.ContainsFunc(relevantKinds, func(kind []byte) bool { return bytes.Contains(data, kind) }) {
		return
	}
	docs, err := document.Parse(file, data)
	if err != nil {
		// Ignore chart templates, which are not YAML before rendering. Report other files only if
		// they may contain an install.
		if bytes.Contains(data, []byte("kind: "+installKind)) && !bytes.Contains(data, []byte("{{")) {
			c.problems.Add(err)
		}
		return
	}
	for _, doc := range docs {
		if doc.Root.Kind == yaml.MappingNode {
			c.addObject(file, doc.Root)
		}
	}
}

func (c *Checkout) addObject(file string, node *yaml.Node) {
	kind, group := scalarValue(node, "kind"), scalarValue(node, "apiVersion")
	group, _, _ = strings.Cut(group, "/")
	switch {
	case kind == installKind && group == installGroup:
		install, errs := decodeInstall(file, node)
		c.problems = append(c.problems, errs...)
		if install != nil {
			c.Installs = append(c.Installs, *install)
		}
	case kind == "ConfigMap" && group == "v1":
		if m, err := document.Map(file, node); err == nil {
			meta, data := asMap(m["metadata"]), asMap(m["data"])
			name, _ := meta["name"].(string)
			namespace, _ := meta["namespace"].(string)
			c.configMaps[namespace+"/"+name] = data
		}
	default:
		c.syncedPaths = append(c.syncedPaths, syncedPathsOf(file, node, kind, group)...)
	}
}

// scalarValue returns the scalar value of a key of a mapping, or an empty string.
func scalarValue(node *yaml.Node, key string) string {
	if v := childNode(node, key); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

func childNode(node *yaml.Node, keys ...string) *yaml.Node {
	for _, key := range keys {
		var next *yaml.Node
		for i := 0; node != nil && node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				next = node.Content[i+1]
			}
		}
		node = next
	}
	return node
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
