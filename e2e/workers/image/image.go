// Package image builds the image workers, which runs scripts, for tests.
package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/internal/release/image"
	"github.com/ksctl/gitops/internal/release/workerd"
)

// Programs are the names of the programs of the image; the first one is its entry point.
var Programs = []string{"worker-runtime", "worker-builder"}

// MissingRequirement returns why the image cannot be built or run here; "" if it can.
func MissingRequirement() string { return workerd.MissingRequirement() }

// Workerd returns the path of workerd. The first call downloads it.
func Workerd(ctx context.Context) (string, error) { return workerd.Program(ctx, runtime.GOARCH) }

// Compile compiles programs of this repository to a folder.
func Compile(ctx context.Context, dir string, programs ...string) error {
	for _, program := range programs {
		// The same flags as in the other suites, so that the build cache is used.
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", filepath.Join(dir, program),
			"github.com/ksctl/gitops/cmd/"+program)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", program, err, out)
		}
	}
	return nil
}

// Build builds the image as a release does, but with the C library of this machine.
func Build(ctx context.Context) (v1.Image, error) {
	if reason := MissingRequirement(); reason != "" {
		return nil, errors.New(reason)
	}
	dir, err := os.MkdirTemp("", "workers")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := Compile(ctx, dir, Programs...); err != nil {
		return nil, err
	}
	content := image.Content{Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}
	for _, program := range Programs {
		binary, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return nil, err
		}
		content.Programs = append(content.Programs, image.Program{Name: program, Content: binary})
	}
	if content.Layers, err = workerd.Layers(ctx, runtime.GOARCH, "/"); err != nil {
		return nil, err
	}
	return image.Build(content, image.Options{})
}

// Push builds the image, pushes it to a tag, and returns its reference by digest.
func Push(ctx context.Context, tag string) (string, error) {
	ref, err := name.NewTag(tag)
	if err != nil {
		return "", err
	}
	built, err := Build(ctx)
	if err != nil {
		return "", err
	}
	if err := remote.Write(ref, built, remote.WithContext(ctx)); err != nil {
		return "", err
	}
	digest, err := built.Digest()
	return ref.Context().Digest(digest.String()).String(), err
}
