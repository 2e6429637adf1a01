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

// Options of a package.
type Options struct {
	// Dir is where the chart is, Out the folder that the package is written to.
	Dir, Out string
	// Version is that of chart and controller, without a "v".
	Version string
	// Repository and Digest of the image that it runs.
	Repository, Digest string
	// Created is the time of its files, so that it is the same whenever it is packaged.
	Created time.Time
}

// Package writes the chart as <name>-<version>.tgz and returns that path. The chart
// names its image by digest.
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

// setImage writes into values.yaml as it stands, for its comments are documentation.
func setImage(c *chartv2.Chart, repository, digest string) error {
	for _, f := range c.Raw {
		if f.Name != util.ValuesfileName {
			continue
		}
		was, _, err := image(f.Data)
		if err != nil {
			return err
		}
		f.Data = bytes.Replace(f.Data, []byte("repository: "+was+"\n"), []byte("repository: "+repository+"\n"), 1)
		f.Data = bytes.Replace(f.Data, []byte("digest: \"\"\n"), []byte("digest: "+digest+"\n"), 1)
		if r, d, err := image(f.Data); err != nil || r != repository || d != digest {
			return fmt.Errorf("%s: it has no lines image.repository and image.digest: %w", util.ValuesfileName, err)
		}
		return nil
	}
	return fmt.Errorf("%s: %w", util.ValuesfileName, fs.ErrNotExist)
}

func image(values []byte) (repository, digest string, err error) {
	var v struct {
		Image struct{ Repository, Digest string } `json:"image"`
	}
	err = yaml.Unmarshal(values, &v)
	return v.Image.Repository, v.Image.Digest, err
}
