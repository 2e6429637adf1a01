package stacks_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ksctl/gitops/stacks"
)

var update = flag.Bool("update", false, "write the golden files")

// caseRequest reads testdata/render/<name>/request.yaml. The source is in the same folder.
func caseRequest(t testing.TB, name string) stacks.Request {
	t.Helper()
	dir := filepath.Join("testdata", "render", name)
	data, err := os.ReadFile(filepath.Join(dir, "request.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	req := stacks.Request{
		Root: filepath.Join(dir, "source"), Digest: "sha256:" + name, Path: "stacks",
		Install:      stacks.Identity{Namespace: "team", Name: "site"},
		Capabilities: stacks.Capabilities{KubeVersion: "v1.36.3", APIVersions: []string{"apps/v1", "v1"}},
		SecretKey:    []byte("test key"),
	}
	if err := yaml.UnmarshalStrict(data, &req); err != nil {
		t.Fatal(err)
	}
	return req
}

// TestRender renders every case and compares the result, errors and warnings with the golden files.
func TestRender(t *testing.T) {
	cases, err := os.ReadDir("testdata/render")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			result, err := stacks.Render(t.Context(), caseRequest(t, c.Name()))
			var got bytes.Buffer
			if err != nil {
				got.WriteString("error:\n" + err.Error() + "\n")
			} else {
				for _, w := range result.Warnings {
					got.WriteString("# warning: " + w + "\n")
				}
				for _, component := range result.Components {
					got.WriteString("# " + component.Name + " version=" + component.Version + " namespace=" +
						component.CreateNamespace + "\n")
				}
				if err := result.WriteYAML(&got); err != nil {
					t.Fatal(err)
				}
			}
			golden(t, filepath.Join("testdata", "render", c.Name(), "want"), got.String())
			wantsError := strings.HasPrefix(c.Name(), "bad-")
			if wantsError != (err != nil) {
				t.Errorf("error is %v, but the case has the name %s", err, c.Name())
			}
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it)\n got:\n%s\nwant:\n%s", file, got, want)
	}
}
