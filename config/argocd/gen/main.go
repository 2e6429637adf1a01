// Command gen writes the keys of argocd-cm from the folders of resource_customizations.
//
//	go run ./config/argocd/gen          write them
//	go run ./config/argocd/gen -check   fail if they are stale, and write nothing
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const (
	folder = "resource_customizations"
	target = "component/argocd-cm.yaml"
)

const header = "# Health checks and actions of our kinds for Argo CD.\n# Generated from ../" + folder +
	" by `make manifests`.\n"

func main() {
	check := flag.Bool("check", false, "Fail if the file is stale, and write nothing.")
	root := flag.String("root", "config/argocd", "The folder of the customizations.")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	fresh, err := configMap(os.DirFS(root))
	if err != nil {
		return err
	}
	file := filepath.Join(root, filepath.FromSlash(target))
	if !check {
		return os.WriteFile(file, fresh, 0o644)
	}
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, fresh) {
		return errors.New(target + " is stale (run: make manifests)")
	}
	return nil
}

// configMap returns argocd-cm as YAML, with the keys for health and actions of each kind that has a
// folder.
func configMap(root fs.FS) ([]byte, error) {
	kinds, err := fs.Glob(root, folder+"/*/*")
	if err != nil {
		return nil, err
	}
	data := map[string]string{}
	for _, dir := range kinds {
		suffix := path.Base(path.Dir(dir)) + "_" + path.Base(dir)
		health, err := fs.ReadFile(root, dir+"/health.lua")
		if err != nil {
			return nil, err
		}
		data["resource.customizations.health."+suffix] = string(health)
		if data["resource.customizations.actions."+suffix], err = actions(root, dir+"/actions"); err != nil {
			return nil, err
		}
	}
	body, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "argocd-cm"}, "data": data})
	return append([]byte(header), body...), err
}

// actions returns the value of the actions key of a kind: its scripts as YAML.
func actions(root fs.FS, dir string) (string, error) {
	discovery, err := fs.ReadFile(root, dir+"/discovery.lua")
	if err != nil {
		return "", err
	}
	scripts, err := fs.Glob(root, dir+"/*/action.lua")
	if err != nil {
		return "", err
	}
	var definitions []map[string]string
	for _, file := range scripts {
		script, err := fs.ReadFile(root, file)
		if err != nil {
			return "", err
		}
		definitions = append(definitions,
			map[string]string{"name": path.Base(path.Dir(file)), "action.lua": string(script)})
	}
	out, err := yaml.Marshal(map[string]any{"discovery.lua": string(discovery), "definitions": definitions})
	return string(out), err
}
