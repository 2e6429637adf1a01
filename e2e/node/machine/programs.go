package machine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/ksctl/gitops/internal/release/image"
)

// PushProgram compiles a program, builds an image as a release does, pushes it to a tag, and
// returns its reference by digest.
func PushProgram(ctx context.Context, tag, pkg string) (string, error) {
	ref, err := name.NewTag(tag)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "program")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Base(pkg)
	binary := filepath.Join(dir, program)
	// The same flags as in the other suites, so that the build cache is used.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return "", err
	}
	built, err := image.Build(image.Content{Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		Programs: []image.Program{{Name: program, Content: content}}}, image.Options{})
	if err != nil {
		return "", err
	}
	if err := remote.Write(ref, built, remote.WithContext(ctx)); err != nil {
		return "", err
	}
	digest, err := built.Digest()
	return ref.Context().Digest(digest.String()).String(), err
}

// Listen starts a server at an address that pods can reach, and returns the address. The returned
// function stops it.
func Listen(handler http.Handler) (address string, stop func(), err error) {
	listener, err := net.Listen("tcp4", net.JoinHostPort(Address.String(), "0"))
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	return listener.Addr().String(), func() {
		_ = server.Close()
		<-served
	}, nil
}
