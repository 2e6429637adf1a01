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

// programs are the programs in the image: the controller, the program that it starts, and the
// agent, which uses the same image.
var programs = []struct{ name, pkg string }{
	{"controller", "github.com/ksctl/gitops/cmd/controller"},
	{sopsworker.ProgramName, "github.com/ksctl/gitops/cmd/sops-worker"},
	{"agent", "github.com/ksctl/gitops/cmd/agent"},
}

func imageCommand(r *release) *cobra.Command {
	var platforms []string
	var push string
	cmd := &cobra.Command{Use: "image", Args: cobra.NoArgs,
		Short: "Build the controller's image into <out>/image, with an SBOM for each platform",
		RunE:  func(cmd *cobra.Command, _ []string) error { return r.image(cmd.Context(), platforms, push) }}
	cmd.Flags().StringSliceVar(&platforms, "platform", []string{"linux/amd64", "linux/arm64"},
		"The platforms to build for.")
	cmd.Flags().StringVar(&push, "push", "",
		"The repository to push to, with an optional tag, which defaults to the version; empty pushes nothing.")
	return cmd
}

// image builds the image index, writes it and the SBOMs to the output folder, and pushes both.
func (r *release) image(ctx context.Context, platforms []string, push string) error {
	contents := make([]image.Content, 0, len(platforms))
	for _, platform := range platforms {
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			return fmt.Errorf("--platform %s: %w", platform, err)
		}
		content, err := r.compileAll(ctx, *p)
		if err != nil {
			return err
		}
		contents = append(contents, content)
	}
	index, err := image.Index(contents, image.Options{Created: r.created, Labels: r.annotations()})
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
	sboms, err := r.writeSBOMs(contents)
	if err != nil || push == "" {
		return err
	}
	return r.pushImage(ctx, push, index, sboms)
}

// compileAll compiles the programs in the image of one platform.
func (r *release) compileAll(ctx context.Context, p v1.Platform) (image.Content, error) {
	out := image.Content{Platform: p}
	for _, b := range programs {
		content, err := r.compile(ctx, b.pkg, p)
		if err != nil {
			return out, err
		}
		out.Programs = append(out.Programs, image.Program{Name: b.name, Content: content})
	}
	return out, nil
}

// writeSBOMs writes an SBOM for each program of each image. It returns the SBOMs by image and
// program.
func (r *release) writeSBOMs(contents []image.Content) ([][][]byte, error) {
	out := make([][][]byte, len(contents))
	for i, c := range contents {
		for _, p := range c.Programs {
			document, err := sbom.Generate(p.Name, r.version, p.Content)
			if err != nil {
				return nil, err
			}
			if err := r.write(fmt.Sprintf("%s_%s_%s_%s.cdx.json", p.Name, r.version, c.Platform.OS,
				c.Platform.Architecture), document); err != nil {
				return nil, err
			}
			out[i] = append(out[i], document)
		}
	}
	return out, nil
}

// pushImage pushes the index and attaches the SBOMs to its images.
func (r *release) pushImage(ctx context.Context, repository string, index v1.ImageIndex, sboms [][][]byte) error {
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
		for _, document := range sboms[i] {
			attached, err := image.Attach(ctx, tag.Digest(m.Digest.String()), sbom.MediaType, document, credentials())
			if err != nil {
				return err
			}
			refs = append(refs, attached)
		}
	}
	return r.recordPushed(refs...)
}

func (r *release) imageFolder() string { return filepath.Join(r.out, "image") }

// imageDigest returns the digest of the image index that was built before for this version.
func (r *release) imageDigest() (string, error) {
	folder, err := layout.ImageIndexFromPath(r.imageFolder())
	if err != nil {
		return "", fmt.Errorf("reading the image, which \"release image\" builds: %w", err)
	}
	manifest, err := folder.IndexManifest()
	if err != nil {
		return "", err
	}
	if built := manifest.Annotations[versionAnnotation]; built != r.version {
		return "", fmt.Errorf("%s: the image has version %q, not %s; run \"release image\" first", r.imageFolder(),
			built, r.version)
	}
	digest, err := folder.Digest()
	return digest.String(), err
}

// tag returns the tag to push to: that in repository, or else one named after the version.
func (r *release) tag(repository string) (name.Tag, error) {
	if tag, err := name.NewTag(repository, name.StrictValidation); err == nil {
		return tag, nil
	}
	// A tag cannot contain the + of a version with build metadata.
	tag, err := name.NewTag(repository+":"+strings.ReplaceAll(r.version, "+", "_"), name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("--push: %w", err)
	}
	return tag, nil
}
