package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/convert/helmtemplate"
	"github.com/ksctl/gitops/stacks/generated"
)

const kubeVersion = "v1.36.0"

// install is one install of a chart.
type install struct {
	release, namespace string
	// values is the content of a values file.
	values []byte
}

// stackFolder is a temporary folder with a chart, which both sides load from there.
type stackFolder struct{ root, chart string }

// newStackFolder copies a chart, a folder or an archive, to a temporary folder. The caller removes
// the folder.
func newStackFolder(chart string) (f stackFolder, err error) {
	if f.root, err = os.MkdirTemp("", "compare-*"); err != nil {
		return f, err
	}
	f.chart = "chart"
	if info, statErr := os.Stat(chart); statErr == nil && info.IsDir() {
		err = os.CopyFS(filepath.Join(f.root, f.chart), os.DirFS(chart))
	} else if data, readErr := os.ReadFile(chart); readErr == nil {
		f.chart = "chart.tgz"
		err = os.WriteFile(filepath.Join(f.root, f.chart), data, 0o600)
	} else {
		err = readErr
	}
	if err != nil {
		return f, errors.Join(err, f.remove())
	}
	return f, nil
}

func (f stackFolder) remove() error { return os.RemoveAll(f.root) }

// request writes a stack for an install of the chart, and returns the request that renders it.
func (f stackFolder) request(in install) (stacks.Request, error) {
	stack := fmt.Sprintf("apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: %s}\nspec:\n  version: "+
		"1.0.0\n  components:\n  - {name: %s, namespace: %s, helm: {chart: ../%s}}\n",
		in.release, in.release, in.namespace, f.chart)
	dir := filepath.Join(f.root, in.release)
	if err := errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, stacks.FileName), []byte(stack), 0o600)); err != nil {
		return stacks.Request{}, err
	}
	values := []stacks.ValuesInput{{Component: in.release, Source: "values", Public: true, Data: in.values}}
	return stacks.Request{Root: f.root, Stack: in.release, Choices: stacks.Choices{Values: values},
		Install: stacks.Identity{Namespace: in.namespace, Name: in.release}, SecretKey: []byte("compare"),
		Generate:     generated.Options{Policy: generated.Keep, Now: time.Now()},
		Capabilities: stacks.Capabilities{KubeVersion: kubeVersion, APIVersions: stacks.BuiltinAPIVersions()}}, nil
}

// renderWithHelm renders an install of the chart with Helm.
func (f stackFolder) renderWithHelm(in install) ([]map[string]any, error) {
	return helmtemplate.Render(filepath.Join(f.root, f.chart), helmtemplate.Options{Release: in.release,
		Namespace: in.namespace, KubeVersion: kubeVersion, APIVersions: stacks.BuiltinAPIVersions(), Values: in.values})
}
