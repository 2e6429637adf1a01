package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/release/image"
	"github.com/ksctl/gitops/internal/release/sbom"
	"github.com/ksctl/gitops/internal/release/workerd"
	"github.com/ksctl/gitops/internal/sopsworker"
)

// controllerImage is the name of the image that the chart and the manifest refer to.
const controllerImage = "controller"

// images are the programs in each image, by its name: the controller with the program that it
// starts and the agent, and the programs of the catalog's stacks.
var images = map[string][]program{
	controllerImage: {
		{"controller", "github.com/ksctl/gitops/cmd/controller"},
		{sopsworker.ProgramName, "github.com/ksctl/gitops/cmd/sops-worker"},
		{"agent", "github.com/ksctl/gitops/cmd/agent"},
	},
	"dynamodb-partition": {{"dynamodb-partition", "github.com/ksctl/gitops/cmd/dynamodb-partition"}},
	workersImage: {
		{"worker-runtime", "github.com/ksctl/gitops/cmd/worker-runtime"},
		{"worker-builder", "github.com/ksctl/gitops/cmd/worker-builder"},
	},
	"worker-registry": {{"worker-registry", "github.com/ksctl/gitops/cmd/worker-registry"}},
	"worker-api":      {{"worker-api", "github.com/ksctl/gitops/cmd/worker-api"}},
}

// workersImage is the name of the image that runs scripts, with workerd.
const workersImage = "workers"

// program is a program in an image; the first one of an image is its entrypoint.
type program struct{ name, pkg string }

// imageOptions are the flags of the command image.
type imageOptions struct {
	name      string
	platforms []string
	push      string
}

func imageCommand(r *release) *cobra.Command {
	o := imageOptions{}
	names := strings.Join(slices.Sorted(maps.Keys(images)), ", ")
	cmd := &cobra.Command{Use: "image", Args: cobra.NoArgs,
		Short: "Build an image into <out>/image/<name>, with an SBOM for each platform",
		RunE:  func(cmd *cobra.Command, _ []string) error { return r.image(cmd.Context(), o) }}
	cmd.Flags().StringVar(&o.name, "name", controllerImage, "The image to build, one of "+names+".")
	cmd.Flags().StringSliceVar(&o.platforms, "platform", []string{"linux/amd64", "linux/arm64"},
		"The platforms to build for.")
	cmd.Flags().StringVar(&o.push, "push", "",
		"The repository to push to, with an optional tag, which defaults to the version; empty pushes nothing.")
	return cmd
}

// image builds the image index, writes it and the SBOMs to the output folder, and pushes both.
func (r *release) image(ctx context.Context, o imageOptions) error {
	programs := images[o.name]
	if programs == nil {
		return fmt.Errorf("--name %s: there is no such image", o.name)
	}
	contents := make([]image.Content, 0, len(o.platforms))
	for _, platform := range o.platforms {
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			return fmt.Errorf("--platform %s: %w", platform, err)
		}
		content, err := r.compileAll(ctx, programs, *p)
		if err != nil {
			return err
		}
		if o.name == workersImage {
			if content.Layers, err = workerd.Layers(ctx, p.Architecture, ""); err != nil {
				return err
			}
		}
		contents = append(contents, content)
	}
	index, err := image.Index(contents, image.Options{Created: r.created, Labels: r.annotations()})
	if err != nil {
		return err
	}
	folder := r.imageFolder(o.name)
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
	if err != nil || o.push == "" {
		return err
	}
	return r.pushImage(ctx, o.push, index, sboms)
}

// compileAll compiles the programs of an image for one platform.
func (r *release) compileAll(ctx context.Context, programs []program, p v1.Platform) (image.Content, error) {
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

func (r *release) imageFolder(name string) string { return filepath.Join(r.out, "image", name) }

// imageDigest returns the digest of the controller's image index that was built before for this
// version.
func (r *release) imageDigest() (string, error) {
	path := r.imageFolder(controllerImage)
	folder, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return "", fmt.Errorf("reading the image, which \"release image\" builds: %w", err)
	}
	manifest, err := folder.IndexManifest()
	if err != nil {
		return "", err
	}
	if built := manifest.Annotations[versionAnnotation]; built != r.version {
		return "", fmt.Errorf("%s: the image has version %q, not %s; run \"release image\" first", path, built,
			r.version)
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
