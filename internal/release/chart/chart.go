// Package chart packages the Helm chart of the controller for a release.
package chart

import (
	"bytes"
	"fmt"
	"io/fs"
	"time"

	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/chart/v2/util"
	"sigs.k8s.io/yaml"
)

// Options configures a package.
type Options struct {
	// Dir is the folder of the chart, and Out the folder for the package.
	Dir, Out string
	// Version is the version of the chart and the controller, without a "v".
	Version string
	// Repository and Digest are those of the controller's image.
	Repository, Digest string
	// Created is the modification time of the files, so that packages are reproducible.
	Created time.Time
}

// Package writes the chart to <Out>/<name>-<version>.tgz and returns the path. The packaged chart
// references the image by digest.
func Package(o Options) (string, error) {
	c, err := loader.LoadDir(o.Dir)
	if err != nil {
		return "", err
	}
	c.Metadata.Version, c.Metadata.AppVersion = o.Version, o.Version
	if err := setImage(c, o.Repository, o.Digest); err != nil {
		return "", err
	}
	c.StampModTimes(o.Created)
	return util.Save(c, o.Out)
}

// setImage sets the image in values.yaml. It edits the text, to keep the comments, which are
// documentation.
func setImage(c *chartv2.Chart, repository, digest string) error {
	for _, f := range c.Raw {
		if f.Name != util.ValuesfileName {
			continue
		}
		previous, _, err := readImage(f.Data)
		if err != nil {
			return err
		}
		f.Data = bytes.Replace(f.Data, []byte("repository: "+previous+"\n"), []byte("repository: "+repository+"\n"), 1)
		f.Data = bytes.Replace(f.Data, []byte("digest: \"\"\n"), []byte("digest: "+digest+"\n"), 1)
		if r, d, err := readImage(f.Data); err != nil || r != repository || d != digest {
			return fmt.Errorf("%s: setting image.repository and image.digest failed: %w", util.ValuesfileName, err)
		}
		return nil
	}
	return fmt.Errorf("%s: %w", util.ValuesfileName, fs.ErrNotExist)
}

func readImage(values []byte) (repository, digest string, err error) {
	var v struct {
		Image struct{ Repository, Digest string } `json:"image"`
	}
	err = yaml.Unmarshal(values, &v)
	return v.Image.Repository, v.Image.Digest, err
}
