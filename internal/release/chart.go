package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/registry"
	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/ksctl/gitops/internal/release/chart"
)

func chartCommand(r *release) *cobra.Command {
	var repository, push string
	cmd := &cobra.Command{Use: "chart", Args: cobra.NoArgs,
		Short: "Package the Helm chart, with the digest of the image that was built before",
		RunE:  func(_ *cobra.Command, _ []string) error { return r.chart(repository, push) }}
	cmd.Flags().StringVar(&repository, "image", "", "The repository of the controller's image.")
	cmd.Flags().StringVar(&push, "push", "",
		"The OCI repository to push to; /ksctl-gitops is appended. Empty pushes nothing.")
	_ = cmd.MarkFlagRequired("image")
	return cmd
}

func (r *release) chart(repository, push string) error {
	digest, err := r.imageDigest()
	if err != nil {
		return err
	}
	path, err := chart.Package(chart.Options{Dir: "config/chart", Out: r.out, Version: r.version,
		Repository: repository, Digest: digest, Created: r.created})
	if err != nil {
		return err
	}
	fmt.Println(path)
	if push == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	pushed, err := pushChart(push+"/ksctl-gitops", r.version, content, r.created)
	if err != nil {
		return err
	}
	return r.recordPushed(pushed)
}

func pushChart(repository, version string, content []byte, created time.Time) (name.Digest, error) {
	repo, err := name.NewRepository(repository, name.StrictValidation)
	if err != nil {
		return name.Digest{}, fmt.Errorf("--push: %w", err)
	}
	var opts []registry.ClientOption
	if repo.Scheme() == "http" { // the registry is on loopback
		opts = append(opts, registry.ClientOptPlainHTTP())
	}
	client, err := registry.NewClient(opts...)
	if err != nil {
		return name.Digest{}, err
	}
	// A tag cannot contain the + of a version with build metadata.
	result, err := client.Push(content, repository+":"+strings.ReplaceAll(version, "+", "_"),
		registry.PushOptCreationTime(created.Format(time.RFC3339)))
	if err != nil {
		return name.Digest{}, err
	}
	return repo.Digest(result.Manifest.Digest), nil
}

func manifestCommand(r *release) *cobra.Command {
	var repository string
	cmd := &cobra.Command{Use: "manifest", Args: cobra.NoArgs,
		Short: "Write install.yaml, for kubectl apply, with the digest of the image that was built before",
		RunE:  func(_ *cobra.Command, _ []string) error { return r.manifest(repository) }}
	cmd.Flags().StringVar(&repository, "image", "", "The repository of the controller's image.")
	_ = cmd.MarkFlagRequired("image")
	return cmd
}

func (r *release) manifest(repository string) error {
	digest, err := r.imageDigest()
	if err != nil {
		return err
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "config/default")
	if err != nil {
		return err
	}
	err = built.ApplyFilter(imagetag.Filter{ImageTag: types.Image{Name: "ksctl-gitops", NewName: repository,
		Digest: digest},
		FsSlice: types.FsSlice{{Path: "spec/template/spec/containers[]/image"}}})
	if err != nil {
		return err
	}
	out, err := built.AsYaml()
	if err != nil {
		return err
	}
	return r.write("install.yaml", out)
}
