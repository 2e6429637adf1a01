// Package workerd gets the workerd of the image workers, and the C library that it needs: workerd
// from npm, in a pinned version, and the library from Debian. Both are added to the image as they
// are.
package workerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Version is the version of workerd.
const Version = "1.20261117.1"

// distribution is the npm package of workerd for a platform.
type distribution struct{ name, integrity string }

// distributions are the packages by architecture, with their integrity as npm has it.
var distributions = map[string]distribution{
	"amd64": {"@cloudflare/workerd-linux-64",
		"sha512-gZLA8X11m/luZwn+YA3+mDu61vdxNJzpksP/QZqjydKTQ+VUCulsK5gtn9Bqst1p3KJu2kafQpJ1nDQv4B23jA=="},
	"arm64": {"@cloudflare/workerd-linux-arm64",
		"sha512-gxWngFojq41ULKNKb9rpWYvKotN5hT2I/xot+Bpy31cXzrwcTgtDLSMb2t75sW5BJxH7hihFvikgYb577kB3Zg=="},
}

// programFile is the path of the program in a package.
const programFile = "package/bin/workerd"

// maxProgram is the largest size of the program, in bytes.
const maxProgram = 512 << 20

// MissingRequirement returns why workerd cannot run here; "" if it can.
func MissingRequirement() string {
	if runtime.GOOS != "linux" || distributions[runtime.GOARCH].name == "" {
		return "workerd runs on linux/amd64 and linux/arm64 only"
	}
	if matches, _ := filepath.Glob(interpreters[runtime.GOARCH]); matches == nil {
		return "workerd needs the GNU C library"
	}
	if path, err := cachedProgram(runtime.GOARCH); err == nil && isExecutable(path) {
		return ""
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return "npm is not on PATH: apt-get install nodejs npm"
	}
	return ""
}

// Program returns the path of workerd for an architecture. The first call downloads it with npm to
// the cache folder of the user.
func Program(ctx context.Context, arch string) (string, error) {
	d, known := distributions[arch]
	if !known {
		return "", fmt.Errorf("there is no workerd for linux/%s", arch)
	}
	path, err := cachedProgram(arch)
	if err != nil || isExecutable(path) {
		return path, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp(filepath.Dir(path), "download-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	pack := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", temp, d.name+"@"+Version)
	pack.Dir = temp
	if out, err := pack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm pack %s: %w\n%s", d.name, err, out)
	}
	archives, err := filepath.Glob(filepath.Join(temp, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("npm pack %s: got %d archives", d.name, len(archives))
	}
	content, err := os.ReadFile(archives[0])
	if err != nil {
		return "", err
	}
	if got := integrity(content); got != d.integrity {
		return "", fmt.Errorf("package %s %s is changed or damaged: its integrity is %s, expected %s", d.name, Version,
			got, d.integrity)
	}
	program := filepath.Join(temp, "workerd")
	if err := unpack(content, program); err != nil {
		return "", fmt.Errorf("unpacking %s: %w", d.name, err)
	}
	return path, os.Rename(program, path)
}

// cachedProgram returns the path of the program in the cache folder of the user.
func cachedProgram(arch string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w", err)
	}
	return filepath.Join(cache, "ksctl-gitops", "workerd", Version+"-"+arch, "workerd"), nil
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func integrity(content []byte) string {
	sum := sha512.Sum512(content)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// unpack writes the program of a package to a file.
func unpack(archive []byte, to string) error {
	content, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("the package has no file %s", programFile)
		}
		if err != nil {
			return err
		}
		if header.Name != programFile {
			continue
		}
		file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
		if err != nil {
			return err
		}
		n, err := io.Copy(file, io.LimitReader(reader, maxProgram+1))
		if n > maxProgram {
			err = errors.New("the program is too large")
		}
		return errors.Join(err, file.Close())
	}
}
