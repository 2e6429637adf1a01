package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ksctl/gitops/e2e/cluster/registry"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/generated"
)

// released are all released versions, with a digest of their files: a version that installs may
// reference must never change. Add new versions here.
var released = map[string]string{
	"cluster-autoscaler@1.0.0": "67b1cd99d1136983c4cca87801e80cc910877d1f5119dd40cc0854cbf2193b25",
	"collector@1.0.0":          "c521af058668bbcefa37020b439866658959836c8d9311edab9b827dea69fa77",
	"dynamodb-local@1.0.0":     "e2bc4e0a039aac40c803802eff209d7fb54b5240efb41608feb4cfd9808acb62",
	"dynamodb-partition@1.0.0": "e60842007c777ae680bb25b7569069c2965a743029921382e3fffc4c770e8b50",
	"minimart@1.0.0":           "c248c83e7730ee7db6804e58876d95008d4040e8bc86823e38e6aa8d5118815c",
	"tenant@1.0.0":             "e335ebd71abb6ca2655bf24d8f8f35043d25316e9345dd66cfa29e0bf569fca1",
	"worker-account@1.0.0":     "c3136c783e8d91e617c42a41c11d91e593e7fecaa026e397bdca4792ada2602c",
	"worker-api@1.0.0":         "db72cace198caacb4fd21fae0388a9d7dbc9588b98a3c561c67303a474f64c01",
	"worker-bundle@1.0.0":      "133d3f05c3ad5de2a086741fa5dbf94e2006b0af2e99db496d0692419ea1267d",
	"worker-deployment@1.0.0":  "bcf4a50d845e72675f3be48bbc352e310235733872be5e9ccd789d29e1b5d28d",
	"worker-registry@1.0.0":    "abac2dabb4d3baa373a2fb2b65b8e2a957a11736d7cbd8f50d9789d879070f7d",
	"worker-release@1.0.0":     "e1b12b715a05ce474958f73f4ec89434ba5889a353523066466565c66b135542",
}

func fingerprint(t *testing.T, files fs.FS) string {
	t.Helper()
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(files, path)
		sum.Write([]byte(path + "\x00"))
		sum.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func TestReleasedVersionsDoNotChange(t *testing.T) {
	var have []string
	for _, name := range Names() {
		for _, v := range Versions(name) {
			have = append(have, name+"@"+v)
			files, err := FS(name, v)
			if err != nil {
				t.Fatal(err)
			}
			if got := fingerprint(t, files); got != released[name+"@"+v] {
				t.Errorf("%s@%s has digest %s: a released version must not change; add a new version to the list", name,
					v, got)
			}
		}
	}
	for v := range released {
		if !slices.Contains(have, v) {
			t.Errorf("%s was released and is missing", v)
		}
	}
}

var workerRelease = map[string]any{"scriptName": "hello", "scriptUrls": []any{"https://example.com/hello.mjs"}}

// parameters are those that a stack requires.
var parameters = map[string]map[string]any{
	"dynamodb-partition": {"tableName": "orders", "partitionValue": "$(HOME)"},
	"worker-account":     {"account": "acme"},
	"worker-bundle":      {"account": "acme", "deploymentName": "acme"},
	"worker-deployment":  {"account": "acme", "release": workerRelease, "workerNumber": 8080},
	"worker-release":     {"account": "acme", "release": workerRelease},
}

// remote are the stacks whose charts are in a repository.
var remote = []string{"collector"}

// Every stack of the catalog renders without settings that it does not require, with the name and
// the version of its folder.
func TestShippedStacksRender(t *testing.T) {
	for _, name := range Names() {
		for _, v := range Versions(name) {
			if slices.Contains(remote, name) {
				if _, err := stacks.LoadFile(folder(t, name, v), stacks.FileName); err != nil {
					t.Error(err)
				}
				continue
			}
			res, err := stacks.Render(t.Context(), stacks.Request{Root: folder(t, name, v), Stack: name,
				Install:      stacks.Identity{Namespace: "team", Name: name},
				Choices:      stacks.Choices{Parameters: parameters[name]},
				Generate:     generated.Options{Policy: generated.Keep, Owner: name},
				Capabilities: stacks.Capabilities{KubeVersion: stacks.DefaultKubeVersion}})
			if err != nil || res.StackVersion != v || len(res.Warnings) > 0 {
				t.Errorf("%s@%s: version %s, %v, %v", name, v, res.StackVersion, res.Warnings, err)
			}
		}
	}
}

// folder returns a folder with the files of a shipped stack.
func folder(t *testing.T, name, version string) string {
	t.Helper()
	files, err := FS(name, version)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.CopyFS(root, files); err != nil {
		t.Fatal(err)
	}
	return root
}

func fetchStackFile(t *testing.T, c *Catalog, stack, version string) (string, error) {
	t.Helper()
	a, err := c.Artifact(t.Context(), stack, version)
	if err != nil {
		return "", err
	}
	if a.Revision != stack+"@"+version {
		t.Errorf("got revision %q", a.Revision)
	}
	f, err := artifact.NewFetcher(artifact.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	tree, err := f.Fetch(t.Context(), a)
	if err != nil {
		return "", err
	}
	defer tree.Release()
	b, err := os.ReadFile(tree.Root + "/stack.yaml")
	return string(b), err
}

func TestArtifactOfShippedAndRemoteStacks(t *testing.T) {
	server, err := registry.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if _, err := server.Push(t.Context(), "catalog/extra", "2.0.0",
		fstest.MapFS{"stack.yaml": {Data: []byte("extra 2")}}, "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Push(t.Context(), "catalog/tenant", "9.0.0",
		fstest.MapFS{"stack.yaml": {Data: []byte("tenant 9")}}, "r"); err != nil {
		t.Fatal(err)
	}
	alone, more := New(Options{}), New(Options{URL: "oci://" + server.Host() + "/catalog/", Insecure: true})
	for name, tc := range map[string]struct {
		catalog        *Catalog
		stack, version string
		has, says      string
	}{
		"shipped":                  {alone, "tenant", "1.0.0", "name: tenant", ""},
		"shipped, with a registry": {more, "tenant", "1.0.0", "name: tenant", ""},
		"another version":          {more, "tenant", "9.0.0", "tenant 9", ""},
		"another stack":            {more, "extra", "2.0.0", "extra 2", ""},
		"no such version": {alone, "tenant", "9.0.0", "",
			`no version "9.0.0" of stack "tenant": want one of 1.0.0`},
		"no such stack": {alone, "tenat", "1.0.0", "",
			`no stack "tenat": want one of cluster-autoscaler, collector, dynamodb-local, ` +
				"dynamodb-partition, minimart, tenant, worker-account, worker-api, worker-bundle, worker-deployment, " +
				"worker-registry, worker-release"},
		"not in catalog or registry": {more, "tenant", "8.0.0", "", `has no tag "8.0.0"`},
		"path traversal":             {alone, "tenant", "../../tenant/1.0.0", "", "no version"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second time from the cache
				got, err := fetchStackFile(t, tc.catalog, tc.stack, tc.version)
				var absent *NotFoundError
				switch {
				case tc.says == "" && (err != nil || !strings.Contains(got, tc.has)):
					t.Errorf("got %q, %v", got, err)
				case tc.says != "" && (!errors.As(err, &absent) || !strings.Contains(err.Error(), tc.says)):
					t.Errorf("got %v, want a *NotFoundError with %q", err, tc.says)
				}
			}
		})
	}
	t.Run("unreachable registry", func(t *testing.T) {
		c := New(Options{URL: "oci://127.0.0.1:1/catalog", Insecure: true})
		_, err := fetchStackFile(t, c, "tenant", "9.0.0")
		var absent *NotFoundError
		if err == nil || errors.As(err, &absent) {
			t.Errorf("got %v, want an error other than *NotFoundError", err)
		}
	})
}
