package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

func packageChart(t *testing.T) []byte {
	t.Helper()
	path, err := Package(Options{Dir: "../../../config/chart", Out: t.TempDir(), Version: "1.2.3",
		Repository: "registry.example.com/controller",
		Digest:     "sha256:" + strings.Repeat("a", 64), Created: time.Unix(1e9, 0)})
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestPackageReferencesImageByDigest(t *testing.T) {
	content := packageChart(t)
	if !bytes.Equal(content, packageChart(t)) {
		t.Error("packaging again gives another package")
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(unzipped).Next()
	if err != nil || header.ModTime.Unix() != 1e9 {
		t.Errorf("modification time %s: %v", header.ModTime, err)
	}
	c, err := loader.LoadArchive(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "1.2.3" {
		t.Errorf("%+v", c.Metadata)
	}
	image, ok := c.Values["image"].(map[string]any)
	if !ok || image["repository"] != "registry.example.com/controller" || image["digest"] != "sha256:"+
		strings.Repeat("a", 64) {
		t.Errorf("image: %v", image)
	}
	for _, f := range c.Raw {
		if f.Name == "values.yaml" && !bytes.Contains(f.Data, []byte("# Where the image is.")) {
			t.Error("the comments in values.yaml are missing")
		}
	}
}

func TestPackageRejectsValuesWithoutImage(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: x\nversion: 0.0.0\n",
		"values.yaml": "image: {}\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Package(Options{Dir: dir, Out: t.TempDir(), Version: "1.0.0", Repository: "r",
		Digest: "sha256:1"}); err == nil {
		t.Error("got no error for values.yaml without the image")
	}
}
