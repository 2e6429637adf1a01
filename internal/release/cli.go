package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/ksctl/gitops/internal/release/archive"
	"github.com/ksctl/gitops/internal/release/catalog"
)

const (
	cliPackage = "github.com/ksctl/gitops/cmd/kubectl-ksctl"
	cliName    = "kubectl-ksctl"
)

func cliCommand(r *release) *cobra.Command {
	var platforms []string
	cmd := &cobra.Command{Use: "cli", Args: cobra.NoArgs,
		Short: "Build kubectl-ksctl, as an archive for each platform, and the checksums of all files in <out>",
		RunE:  func(cmd *cobra.Command, _ []string) error { return r.cli(cmd.Context(), platforms) }}
	cmd.Flags().StringSliceVar(&platforms, "platform",
		[]string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"},
		"The platforms to build for.")
	return cmd
}

func (r *release) cli(ctx context.Context, platforms []string) error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	for _, platform := range platforms {
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			return fmt.Errorf("--platform %s: %w", platform, err)
		}
		binary, err := r.compile(ctx, cliPackage, *p)
		if err != nil {
			return err
		}
		file, pack, suffix := cliName, archive.TarGzip, ".tar.gz"
		if p.OS == "windows" {
			file, pack, suffix = cliName+".exe", archive.Zip, ".zip"
		}
		content, err := pack([]archive.File{{Name: file, Mode: 0o755, Content: binary},
			{Name: "LICENSE", Mode: 0o644, Content: license}}, r.created)
		if err != nil {
			return err
		}
		if err := r.write(fmt.Sprintf("%s_%s_%s_%s%s", cliName, r.version, p.OS, p.Architecture, suffix),
			content); err != nil {
			return err
		}
	}
	return r.writeChecksums()
}

// writeChecksums writes SHA256SUMS, with the checksum of every file in the output folder, in the
// format of sha256sum.
func (r *release) writeChecksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, e := range entries {
		if e.IsDir() || e.Name() == "SHA256SUMS" || e.Name() == "pushed.txt" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), e.Name())
	}
	return r.write("SHA256SUMS", sums.Bytes())
}

func catalogCommand(r *release) *cobra.Command {
	var push string
	cmd := &cobra.Command{Use: "catalog", Args: cobra.NoArgs,
		Short: "Push every version of every catalog stack, for --catalog-url of the controller",
		RunE: func(cmd *cobra.Command, _ []string) error {
			pushed, err := catalog.Push(cmd.Context(), push, r.annotations(), credentials())
			if err != nil {
				return err
			}
			return r.recordPushed(pushed...)
		}}
	cmd.Flags().StringVar(&push, "push", "", "The repository to push to; /<stack>:<version> is appended.")
	_ = cmd.MarkFlagRequired("push")
	return cmd
}
