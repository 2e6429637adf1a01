// Package checkout looks at a whole working copy of a repository: every stack and
// every install in it, and what Flux and Argo CD sync from it. It needs no cluster.
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
	"github.com/ksctl/gitops/stacks/problem"
)

// Checkout is what was found in a working copy.
type Checkout struct {
	root string
	tree *source.Tree

	// Stacks are the paths of stack files.
	Stacks []string
	// Installs in the order of their files.
	Installs []Install

	configMaps map[string]map[string]any
	syncs      []sync
	problems   stacks.Errors
}

// Open reads a working copy.
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
		_ = tree.Close()
		return nil, err
	}
	for _, file := range files {
		if path.Base(file) == stacks.FileName {
			c.Stacks = append(c.Stacks, file)
			continue
		}
		switch strings.ToLower(path.Ext(file)) {
		case ".yaml", ".yml", ".json":
			c.manifest(file)
		}
	}
	return c, nil
}

// Close releases the working copy.
func (c *Checkout) Close() error { return c.tree.Close() }

// interesting are kinds that are looked for; most files have none of them and are not parsed.
var interesting = [][]byte{[]byte(installKind), []byte("ConfigMap"), []byte("Kustomization"), []byte("Application")}

// manifest reads a file that may hold objects which matter here.
func (c *Checkout) manifest(file string) {
	data, err := c.tree.Read(file, source.MaxFile)
	if err != nil || !slices.ContainsFunc(interesting, func(kind []byte) bool { return bytes.Contains(data, kind) }) {
		return
	}
	docs, err := document.Parse(file, data)
	if err != nil {
		// Templates of charts are not YAML yet; whose install this is can't be told.
		if bytes.Contains(data, []byte("kind: "+installKind)) && !bytes.Contains(data, []byte("{{")) {
			c.problems = append(c.problems, problem.All(err)...)
		}
		return
	}
	for _, doc := range docs {
		if doc.Root.Kind == yaml.MappingNode {
			c.object(file, doc.Root)
		}
	}
}

func (c *Checkout) object(file string, node *yaml.Node) {
	kind, group := scalar(node, "kind"), scalar(node, "apiVersion")
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
			meta, data := object(m["metadata"]), object(m["data"])
			name, _ := meta["name"].(string)
			namespace, _ := meta["namespace"].(string)
			c.configMaps[namespace+"/"+name] = data
		}
	default:
		c.syncs = append(c.syncs, syncsOf(file, node, kind, group)...)
	}
}

// scalar is the value of a key of a mapping.
func scalar(node *yaml.Node, key string) string {
	if v := child(node, key); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

func child(node *yaml.Node, keys ...string) *yaml.Node {
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

func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}
