package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/release/image"
	"github.com/ksctl/gitops/internal/release/sbom"
	"github.com/ksctl/gitops/internal/sopsworker"
)

const (
	controllerPackage = "github.com/ksctl/gitops/cmd/controller"
	controllerName    = "controller"
)

// beside are the programs that go into the image with the controller: what it starts, and the agent, for
// whom the same image serves.
var beside = []struct{ name, pkg string }{
	{sopsworker.Program, "github.com/ksctl/gitops/cmd/sops-worker"},
	{"agent", "github.com/ksctl/gitops/cmd/agent"},
}

func imageCommand(r *release) *cobra.Command {
	var platforms []string
	var push string
	cmd := &cobra.Command{Use: "image", Args: cobra.NoArgs, Short: "Build the controller's image into <out>/image, with an SBOM for each platform",
		RunE: func(cmd *cobra.Command, _ []string) error { return r.image(cmd.Context(), platforms, push) }}
	cmd.Flags().StringSliceVar(&platforms, "platform", []string{"linux/amd64", "linux/arm64"}, "The platforms to build for.")
	cmd.Flags().StringVar(&push, "push", "", "The repository to push to, under the version as its tag unless it has one; empty: nowhere.")
	return cmd
}

func (r *release) image(ctx context.Context, platforms []string, push string) error {
	binaries := make([]image.Binary, 0, len(platforms))
	for _, said := range platforms {
		p, err := v1.ParsePlatform(said)
		if err != nil {
			return fmt.Errorf("--platform %s: %w", said, err)
		}
		binary, err := r.programs(ctx, *p)
		if err != nil {
			return err
		}
		binaries = append(binaries, binary)
	}
	index, err := image.Index(binaries, image.Options{Created: r.created, Labels: r.annotations()})
	if err != nil {
		return err
	}
	folder := r.imageFolder()
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if _, err := layout.Write(folder, index); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Println(folder, digest)
	documents, err := r.documents(binaries)
	if err != nil || push == "" {
		return err
	}
	return r.pushImage(ctx, push, index, documents)
}

// programs compiles what goes into the image of one platform.
func (r *release) programs(ctx context.Context, p v1.Platform) (image.Binary, error) {
	content, err := r.compile(ctx, controllerPackage, p)
	if err != nil {
		return image.Binary{}, err
	}
	out := image.Binary{Platform: p, Name: controllerName, Content: content}
	for _, b := range beside {
		if content, err = r.compile(ctx, b.pkg, p); err != nil {
			return image.Binary{}, err
		}
		out.Beside = append(out.Beside, image.Program{Name: b.name, Content: content})
	}
	return out, nil
}

// documents writes what the programs of each image are made of.
func (r *release) documents(binaries []image.Binary) ([][][]byte, error) {
	out := make([][][]byte, len(binaries))
	for i, b := range binaries {
		for _, p := range append([]image.Program{{Name: b.Name, Content: b.Content}}, b.Beside...) {
			document, err := sbom.Of(p.Name, r.version, p.Content)
			if err != nil {
				return nil, err
			}
			if err := r.write(fmt.Sprintf("%s_%s_%s_%s.cdx.json", p.Name, r.version, b.Platform.OS, b.Platform.Architecture), document); err != nil {
				return nil, err
			}
			out[i] = append(out[i], document)
		}
	}
	return out, nil
}

// pushImage pushes the index and, to each of its images, what it is made of.
func (r *release) pushImage(ctx context.Context, repository string, index v1.ImageIndex, documents [][][]byte) error {
	tag, err := r.tag(repository)
	if err != nil {
		return err
	}
	pushed, err := image.Push(ctx, tag, index, credentials())
	if err != nil {
		return err
	}
	refs := []name.Digest{pushed}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	for i, m := range manifest.Manifests {
		for _, document := range documents[i] {
			attached, err := image.Attach(ctx, tag.Digest(m.Digest.String()), sbom.MediaType, document, credentials())
			if err != nil {
				return err
			}
			refs = append(refs, attached)
		}
	}
	return r.pushed(refs...)
}

func (r *release) imageFolder() string { return filepath.Join(r.out, "image") }

// imageDigest is that of the image that was built, of this version.
func (r *release) imageDigest() (string, error) {
	folder, err := layout.ImageIndexFromPath(r.imageFolder())
	if err != nil {
		return "", fmt.Errorf("the image comes first (release image): %w", err)
	}
	manifest, err := folder.IndexManifest()
	if err != nil {
		return "", err
	}
	if built := manifest.Annotations[versionAnnotation]; built != r.version {
		return "", fmt.Errorf("%s has the image of version %q: build that of %s first (release image)", r.imageFolder(), built, r.version)
	}
	digest, err := folder.Digest()
	return digest.String(), err
}

// tag is that of the version, unless the repository comes with one.
func (r *release) tag(repository string) (name.Tag, error) {
	if tag, err := name.NewTag(repository, name.StrictValidation); err == nil {
		return tag, nil
	}
	// A tag can't hold the + of a version with build metadata.
	tag, err := name.NewTag(repository+":"+strings.ReplaceAll(r.version, "+", "_"), name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("--push: %w", err)
	}
	return tag, nil
}
