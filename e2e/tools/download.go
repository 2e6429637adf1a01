package tools

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"
)

// MirrorVariable is the environment variable with the URL of a mirror of the releases of
// kubernetes-sigs/controller-tools. The mirror has folders such as envtest-v1.36.2.
const MirrorVariable = "KSCTL_TOOLS_MIRROR"

// ErrUnavailable is returned if nothing can be downloaded: there is no network, or no archive for
// this platform and version. The caller can build the programs instead.
var ErrUnavailable = errors.New("prebuilt programs are not available")

// ErrChecksum is returned if an archive does not match the checksum in the index.
var ErrChecksum = errors.New("changed or damaged")

// Maximum sizes of an archive and of each program in it, in bytes. The archive of version 1.36 has
// 60 MB.
const (
	maxArchive = 512 << 20
	maxProgram = 1 << 30
)

// Download returns a folder with etcd, kube-apiserver and kubectl, usable as the value of
// [AssetsVariable]. The first call downloads the patch release of our minor version that is nearest
// to ours. URL and checksum come from the index in the module sigs.k8s.io/controller-tools, whose
// setup-envtest downloads the same archives. Download writes to progress. The
// error is [ErrUnavailable], [ErrChecksum], or a file system error.
func Download(ctx context.Context, progress io.Writer) (string, error) {
	w, err := newBuilder(ctx)
	if err != nil {
		return "", err
	}
	want, err := Version(APIServer)
	if err != nil {
		return "", err
	}
	index, err := w.releaseIndex(ctx)
	if err != nil {
		return "", unavailable(ctx, err)
	}
	a, err := nearestArchive(index, want, runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return "", err
	}
	if mirror := os.Getenv(MirrorVariable); mirror != "" {
		a.url = strings.TrimSuffix(mirror, "/") + "/" + path.Base(path.Dir(a.url)) + "/" + path.Base(a.url)
	}
	return w.download(ctx, a, &reporter{out: progress, subject: "etcd, kube-apiserver and kubectl " + a.version,
		start: time.Now()})
}

// releaseIndex reads the release index of the controller-tools version that generates our CRDs.
func (w builder) releaseIndex(ctx context.Context) ([]byte, error) {
	dir, err := moduleDir(ctx, filepath.Join(w.root, "..", "..", "internal", "tools", "controller-gen"),
		"sigs.k8s.io/controller-tools")
	if err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "envtest-releases.yaml"))
}

// archive is one entry of the index.
type archive struct{ version, url, sha512 string }

// nearestArchive returns the archive for a platform with the wanted minor version and the nearest
// patch version. Of two equally near patch versions it returns the newer.
func nearestArchive(index []byte, want, goos, goarch string) (archive, error) {
	var content struct {
		Releases map[string]map[string]struct{ Hash, SelfLink string }
	}
	if err := yaml.Unmarshal(index, &content); err != nil {
		return archive{}, fmt.Errorf("reading the index of sigs.k8s.io/controller-tools: %w", err)
	}
	var best archive
	for version, files := range content.Releases {
		file, ok := files[fmt.Sprintf("envtest-%s-%s-%s.tar.gz", version, goos, goarch)]
		if !ok || semver.MajorMinor(version) != semver.MajorMinor(want) || semver.Prerelease(version) != "" {
			continue
		}
		nearer := distance(version, want) - distance(best.version, want)
		if best.version == "" || nearer < 0 || nearer == 0 && semver.Compare(version, best.version) > 0 {
			best = archive{version: version, url: file.SelfLink, sha512: file.Hash}
		}
	}
	if best.version == "" {
		return archive{}, fmt.Errorf("%w: the index of sigs.k8s.io/controller-tools has no release %s.x for %s/%s",
			ErrUnavailable, semver.MajorMinor(want), goos, goarch)
	}
	return best, nil
}

// distance returns the number of patch releases between two versions of the same minor version.
func distance(a, b string) int {
	patch := func(v string) int {
		n, _ := strconv.Atoi(v[strings.LastIndex(v, ".")+1:])
		return n
	}
	return max(patch(a)-patch(b), patch(b)-patch(a))
}

// download returns the cached folder with an archive's programs. It downloads the archive unless
// another process has done so while download waited for the lock.
func (w builder) download(ctx context.Context, a archive, p *reporter) (string, error) {
	folder := filepath.Join(w.cache, strings.TrimSuffix(path.Base(a.url), ".tar.gz")+"-"+
		a.sha512[:min(12, len(a.sha512))])
	if complete(folder) {
		return folder, nil
	}
	if err := os.MkdirAll(w.cache, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache folder: %w", err)
	}
	release, err := lock(ctx, folder+".lock", p)
	if err != nil {
		return "", err
	}
	defer release()
	if complete(folder) {
		return folder, nil
	}
	temp, err := os.MkdirTemp(w.cache, "download-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	p.report("downloading " + a.url)
	stop := p.reportPeriodically("still downloading")
	err = fetch(ctx, a, filepath.Join(temp, "archive"))
	stop()
	if err != nil {
		return "", err
	}
	programs := filepath.Join(temp, "programs")
	if err := unpack(filepath.Join(temp, "archive"), programs); err != nil {
		return "", fmt.Errorf("unpacking %s: %w", a.url, err)
	}
	if !complete(programs) {
		return "", fmt.Errorf("archive %s is incomplete: it must contain %s", a.url, strings.Join(prebuilt, ", "))
	}
	// An incomplete folder would make the rename fail.
	if err := os.RemoveAll(folder); err != nil {
		return "", err
	}
	p.report("downloaded")
	return folder, os.Rename(programs, folder)
}

// prebuilt are the programs in an archive.
var prebuilt = []string{Etcd, APIServer, Kubectl}

func complete(folder string) bool {
	return !slices.ContainsFunc(prebuilt, func(name string) bool { return !executable(filepath.Join(folder, name)) })
}

// stallTimeout bounds the time without data while a response body is read.
const stallTimeout = 30 * time.Second

// client has timeouts for the connection and the response header; stallTimeout applies to the body.
var client = &http.Client{Transport: &http.Transport{
	Proxy:                 http.ProxyFromEnvironment,
	DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
	TLSHandshakeTimeout:   10 * time.Second,
	ResponseHeaderTimeout: 20 * time.Second,
}}

// fetch downloads an archive to a file and verifies its checksum.
func fetch(ctx context.Context, a archive, to string) error {
	stalls, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(stalls, http.MethodGet, a.url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return unavailable(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: GET %s: %s", ErrUnavailable, a.url, resp.Status)
	}
	file, err := os.Create(to)
	if err != nil {
		return err
	}
	timer := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no data for %s", stallTimeout)) })
	defer timer.Stop()
	sum := sha512.New()
	n, err := io.Copy(io.MultiWriter(file, sum),
		io.LimitReader(&stallReader{body: resp.Body, timer: timer}, maxArchive+1))
	if closed := file.Close(); err == nil && closed != nil {
		return closed
	}
	if err != nil {
		return unavailable(ctx, err)
	}
	if n > maxArchive {
		return fmt.Errorf("archive %s is larger than %d bytes", a.url, maxArchive)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != a.sha512 {
		return fmt.Errorf("archive %s is %w: its SHA-512 is %s, the index of sigs.k8s.io/controller-tools has %s",
			a.url, ErrChecksum, got, a.sha512)
	}
	return nil
}

// stallReader restarts a timer whenever it reads data from a body.
type stallReader struct {
	body  io.Reader
	timer *time.Timer
}

func (w *stallReader) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if n > 0 {
		w.timer.Reset(stallTimeout)
	}
	return n, err
}

// unavailable wraps err in [ErrUnavailable]. If ctx is canceled, it returns the cause instead.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// unpack writes the programs of an archive to a new folder.
func unpack(archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	for reader := tar.NewReader(content); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, name := range prebuilt {
			if header.Typeflag == tar.TypeReg && path.Base(header.Name) == name {
				if err := writeProgram(filepath.Join(folder, name), reader); err != nil {
					return err
				}
			}
		}
	}
}

func writeProgram(to string, content io.Reader) error {
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, io.LimitReader(content, maxProgram+1))
	if n > maxProgram {
		err = fmt.Errorf("program %s is larger than %d bytes", filepath.Base(to), maxProgram)
	}
	return errors.Join(err, file.Close())
}
