package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const versionAnnotation = "org.opencontainers.image.version"

const repositoryURL = "https://github.com/ksctl/gitops"

// release holds the settings that all steps share.
type release struct {
	version, out string
	commit       string
	// created is the time of the commit, so that builds are reproducible.
	created time.Time
}

// prepare checks the version, reads the commit and creates the output folder.
func (r *release) prepare(ctx context.Context) error {
	if _, err := semver.StrictNewVersion(r.version); err != nil {
		return fmt.Errorf("--version %q: must be a semantic version without a v, such as 0.1.0: %w", r.version, err)
	}
	output, err := command(ctx, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	commit, epoch, _ := strings.Cut(strings.TrimSpace(output), " ")
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("parsing the time of commit %s: %w", commit, err)
	}
	r.commit, r.created = commit, time.Unix(seconds, 0).UTC()
	return os.MkdirAll(r.out, 0o755)
}

// annotations returns the OCI annotations of all pushed artifacts.
// https://github.com/opencontainers/image-spec/blob/main/annotations.md
func (r *release) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.created":  r.created.Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.source":   repositoryURL,
		versionAnnotation:                   r.version,
	}
}

// compile builds a program for a platform and returns the binary.
func (r *release) compile(ctx context.Context, pkg string, p v1.Platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "program")
	fmt.Fprintf(os.Stderr, "%s for %s\n", pkg, p)
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Architecture, "GOFLAGS=-mod=readonly", "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off"}
	_, err = command(ctx, env, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X github.com/ksctl/gitops/internal/version.version="+r.version, "-o", binary, pkg)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(binary)
}

// write writes a file into the output folder and prints its path.
func (r *release) write(file string, content []byte) error {
	path := filepath.Join(r.out, file)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}

// requireCleanTree returns an error if there are uncommitted changes. A pushed artifact names the
// commit, so it must not contain anything else.
func (r *release) requireCleanTree(ctx context.Context) error {
	changed, err := command(ctx, nil, "git", "status", "--porcelain")
	if err != nil || changed == "" {
		return err
	}
	return fmt.Errorf("pushing commit %.12s: there are uncommitted changes; commit them first:\n%s", r.commit, changed)
}

// recordPushed appends references to pushed.txt, the list of what to sign.
func (r *release) recordPushed(refs ...name.Digest) (err error) {
	f, err := os.OpenFile(filepath.Join(r.out, "pushed.txt"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, ref := range refs {
		fmt.Println("pushed", ref)
		if _, err := fmt.Fprintln(f, ref); err != nil {
			return err
		}
	}
	return nil
}

// credentials returns the registry credentials of docker login.
func credentials() remote.Option { return remote.WithAuthFromKeychain(authn.DefaultKeychain) }

// command runs a program with additional environment variables and returns its standard output.
func command(ctx context.Context, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return out.String(), nil
}
