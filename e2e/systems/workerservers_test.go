package systems_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/node/machine"
	workersimage "github.com/ksctl/gitops/e2e/workers/image"
)

// registryHost is the default address of the registry in the catalog.
const registryHost = "worker-registry.workers.svc:5000"

// workerServers is what the specs of workers run against: servers of scripts, and the registry.
type workerServers struct {
	files *fileServer
	s3    *s3mem.Backend
	// registry is the address of the registry of the stack.
	registry string
	// volume is its folder on the node.
	volume string
	// images is where builders pull from; another registry, beside that of the stack.
	images string
}

func workersKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "workers.ksctl.com", Version: "v1alpha1", Kind: kind}
}

func newWorkerServers(ctx context.Context) *workerServers {
	GinkgoHelper()
	if reason := workersimage.MissingRequirement(); reason != "" {
		Skip("workers cannot run here: " + reason)
	}
	_, err := workersimage.Push(ctx, images.Host()+"/ksctl/gitops/workers:0.1.0")
	Expect(err).NotTo(HaveOccurred())
	for _, program := range []string{"worker-registry", "worker-api"} {
		push(ctx, "ksctl/gitops/"+program+":0.1.0", "cmd/"+program)
	}
	w := &workerServers{files: newFileServer(), s3: s3mem.New()}
	Expect(w.s3.CreateBucket("scripts")).To(Succeed())
	s3 := listen(gofakes3.New(w.s3).Server())

	// Builders pull the base image, and do not know containerd's mirrors.
	mirror := strings.TrimPrefix(listen(httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http",
		Host: images.Host()})), "http://")
	Expect(node.Mirror(mirror, mirror)).To(Succeed())
	w.images = mirror

	apply(ctx, example("workers.md", "The registry", "workers/registry.yaml"))
	w.awaitRegistry(ctx)
	apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: workers, namespace: workers}
data: {image: %q, s3Endpoint: %q, downloadSecret: s3}
---
apiVersion: v1
kind: Secret
metadata: {name: s3, namespace: workers}
stringData: {AWS_ACCESS_KEY_ID: example, AWS_SECRET_ACCESS_KEY: example-secret-key, AWS_REGION: us-east-1}
`, mirror+"/ksctl/gitops/workers:0.1.0", s3))
	w.publishKinds(ctx)
	return w
}

// publishKinds publishes the four kinds, and removes them at the end, when the specs have removed
// what they created.
func (w *workerServers) publishKinds(ctx context.Context) {
	GinkgoHelper()
	apply(ctx, example("workers.md", "Publish the kinds", "platform/workers.yaml"))
	for _, kind := range []string{"worker-release", "worker-bundle", "worker-deployment", "worker-account"} {
		o := object(appsv1.GroupVersion.WithKind("KsctlKind"), "", kind)
		becomes(ctx, o, "Ready", "True ")
		DeferCleanup(func(ctx SpecContext) {
			change(ctx, o, `{"spec": {"deletionPolicy": "Delete"}}`)
			remove(ctx, o)
			gone(ctx, o)
		})
	}
}

// awaitRegistry makes the volume of the registry, waits until it serves, and lets the node pull
// from it.
func (w *workerServers) awaitRegistry(ctx context.Context) {
	GinkgoHelper()
	w.volume = volume(ctx, "worker-registry")
	install := object(appsv1.GroupVersion.WithKind("KsctlInstall"), "workers", "worker-registry")
	DeferCleanup(func(ctx SpecContext) {
		remove(ctx, install)
		gone(ctx, install)
	})
	becomes(ctx, install, "Ready", "True ")
	service := &corev1.Service{ObjectMeta: meta("workers", "worker-registry")}
	Expect(get(ctx, service)).To(Succeed())
	w.registry = service.Spec.ClusterIP + ":5000"
	Expect(node.Mirror(registryHost, w.registry)).To(Succeed())
}

// volume creates a volume on the node for a PersistentVolumeClaim in the namespace workers, and
// returns its folder.
func volume(ctx context.Context, claim string) string {
	GinkgoHelper()
	folder := filepath.Join(GinkgoT().TempDir(), claim)
	Expect(os.Mkdir(folder, 0o700)).To(Succeed())
	Expect(os.Chmod(folder, 0o777)).To(Succeed()) //nolint:gosec // the programs are not root
	apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {namespace: workers, name: %[1]s}
  hostPath: {path: %[2]q}
`, claim, folder))
	return folder
}

// loseImages empties the volume of the registry.
func (w *workerServers) loseImages(ctx context.Context) {
	GinkgoHelper()
	entries, err := os.ReadDir(w.volume)
	Expect(err).NotTo(HaveOccurred())
	for _, e := range entries {
		Expect(os.RemoveAll(filepath.Join(w.volume, e.Name()))).To(Succeed())
	}
	w.restartRegistry(ctx)
	Expect(w.repositories(ctx)).To(BeEmpty())
}

// listen starts a server that pods reach until the end of the specs, and returns its URL.
func listen(handler http.Handler) string {
	GinkgoHelper()
	address, stop, err := machine.Listen(handler)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(stop)
	return "http://" + address
}

// fileServer serves files, and counts their downloads.
type fileServer struct {
	url string

	mutex sync.Mutex
	files map[string]string
	count map[string]int
}

func newFileServer() *fileServer {
	GinkgoHelper()
	s := &fileServer{files: map[string]string{}, count: map[string]int{}}
	s.url = listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mutex.Lock()
		content, found := s.files[r.URL.Path]
		s.count[r.URL.Path]++
		s.mutex.Unlock()
		if !found {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, content)
	}))
	return s
}

func (s *fileServer) put(path, content string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.files[path] = content
}

func (s *fileServer) downloads(path string) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.count[path]
}

func (w *workerServers) putObject(key string, content []byte) {
	GinkgoHelper()
	_, err := w.s3.PutObject("scripts", key, map[string]string{}, strings.NewReader(string(content)),
		int64(len(content)), nil)
	Expect(err).NotTo(HaveOccurred())
}

func (w *workerServers) deployment(name string) *unstructured.Unstructured {
	return object(workersKind("WorkerDeployment"), "workers", name)
}

// setScript changes the URL of a script with one module.
func (w *workerServers) setScript(ctx context.Context, name, script string) {
	GinkgoHelper()
	change(ctx, w.deployment(name), fmt.Sprintf(`{"spec": {"template": {"scriptUrls": [%q]}}}`, script))
}

// serves waits until a worker responds to a path as expected.
func (w *workerServers) serves(ctx context.Context, account string, port int, path, want string) {
	GinkgoHelper()
	service := &corev1.Service{ObjectMeta: meta("workers", account)}
	Eventually(ctx, func() (string, error) {
		if err := get(ctx, service); err != nil {
			return "", err
		}
		return request(ctx, service.Spec.ClusterIP, port, path)
	}, soon).Should(Equal(want), "port %d", port)
}

// request sends a request on a connection of its own.
func request(ctx context.Context, host string, port int, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+":"+strconv.Itoa(port)+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return strconv.Itoa(res.StatusCode) + " " + strings.TrimSpace(string(body)), err
}

// requestLoad sends requests to workers until it is stopped.
type requestLoad struct {
	stop   context.CancelFunc
	done   chan struct{}
	sent   int
	failed []string
}

// load sends requests to ports of an account, one after the other.
func (w *workerServers) load(ctx context.Context, account string, paths map[int]string) *requestLoad {
	GinkgoHelper()
	service := &corev1.Service{ObjectMeta: meta("workers", account)}
	Expect(get(ctx, service)).To(Succeed())
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &requestLoad{stop: cancel, done: make(chan struct{})}
	DeferCleanup(cancel)
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			for port, path := range paths {
				response, err := request(ctx, service.Spec.ClusterIP, port, path)
				if ctx.Err() != nil {
					return
				}
				if l.sent++; err != nil || !strings.HasPrefix(response, "200 ") {
					l.failed = append(l.failed, fmt.Sprint(port, " ", response, " ", err))
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond): // some hundred requests a second are enough
			}
		}
	}()
	return l
}

// none stops the requests, and fails if one of them failed.
func (l *requestLoad) none() {
	GinkgoHelper()
	l.stop()
	<-l.done
	Expect(l.sent).To(BeNumerically(">", 100))
	Expect(l.failed).To(BeEmpty(), "of %d requests", l.sent)
	AddReportEntry("requests", l.sent)
}

func (w *workerServers) reference(repository string) name.Reference {
	GinkgoHelper()
	ref, err := name.ParseReference(w.registry+"/workers/"+repository, name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	return ref
}

// tags returns the tags of a repository.
func (w *workerServers) tags(ctx context.Context, repository string) []string {
	GinkgoHelper()
	var tags []string
	Eventually(ctx, func() (err error) {
		tags, err = remote.List(w.reference(repository).Context(), remote.WithContext(ctx))
		return err
	}, soon).Should(Succeed())
	return tags
}

// repositories returns the repositories that have tags.
func (w *workerServers) repositories(ctx context.Context) (out []string) {
	GinkgoHelper()
	host, err := name.NewRegistry(w.registry, name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	var all []string
	Eventually(ctx, func() (err error) {
		all, err = remote.Catalog(ctx, host)
		return err
	}, soon).Should(Succeed())
	for _, repository := range all {
		repository = strings.TrimPrefix(repository, "workers/")
		if tags, err := remote.List(w.reference(repository).Context(), remote.WithContext(ctx)); err == nil &&
			len(tags) > 0 {
			out = append(out, repository)
		}
	}
	return out
}

// pulls pulls an image with all of its layers.
func (w *workerServers) pulls(ctx context.Context, repository string) v1.Image {
	GinkgoHelper()
	image, err := remote.Image(w.reference(repository), remote.WithContext(ctx))
	Expect(err).NotTo(HaveOccurred())
	layers, err := image.Layers()
	Expect(err).NotTo(HaveOccurred())
	for _, layer := range layers {
		content, err := layer.Compressed()
		Expect(err).NotTo(HaveOccurred())
		_, err = io.Copy(io.Discard, content)
		Expect(err).NotTo(HaveOccurred())
		Expect(content.Close()).To(Succeed())
	}
	return image
}

// layers returns the digests of the layers of the scripts in the image that serves an account.
func (w *workerServers) layers(ctx context.Context, account string) map[string]string {
	GinkgoHelper()
	ref := w.pod(ctx, account).Spec.Containers[0].Image
	image, err := remote.Image(w.reference(strings.TrimPrefix(ref, registryHost+"/workers/")), remote.WithContext(ctx))
	Expect(err).NotTo(HaveOccurred())
	manifest, err := image.Manifest()
	Expect(err).NotTo(HaveOccurred())
	out := map[string]string{}
	for _, layer := range manifest.Layers {
		for _, origin := range layer.Annotations {
			if _, script, found := strings.Cut(origin, "/"+account+"/"); found {
				script, _, _ = strings.Cut(script, ":")
				out[script] = layer.Digest.String()
			}
		}
	}
	return out
}

// buildResult returns the result of the Job that built the image of an account last.
func (w *workerServers) buildResult(ctx context.Context, account string) string {
	GinkgoHelper()
	var jobs batchv1.JobList
	Expect(plane.Client().List(ctx, &jobs, client.InNamespace("workers"))).To(Succeed())
	for _, j := range jobs.Items {
		if strings.HasPrefix(j.Name, account+"-build-") {
			Expect(json.Valid([]byte(j.Annotations["ksctl.com/result"]))).To(BeTrue(), j.Name)
			return j.Annotations["ksctl.com/result"]
		}
	}
	Fail("there is no build")
	return ""
}

// restartRegistry deletes the Pod of the registry, and waits until another one serves.
func (w *workerServers) restartRegistry(ctx context.Context) {
	GinkgoHelper()
	selected := client.MatchingLabels{"app.kubernetes.io/name": "worker-registry"}
	var pods corev1.PodList
	Expect(plane.Client().List(ctx, &pods, client.InNamespace("workers"), selected)).To(Succeed())
	Expect(pods.Items).To(HaveLen(1))
	Expect(plane.Client().Delete(ctx, &pods.Items[0])).To(Succeed())
	Eventually(ctx, func(g Gomega) {
		g.Expect(get(ctx, &pods.Items[0])).NotTo(Succeed())
		g.Expect(readyPods(ctx, "workers", "app.kubernetes.io/name", "worker-registry")).To(Equal(1))
	}, soon).Should(Succeed())
}

// collectGarbage lets the registry delete content that no tag refers to.
func (w *workerServers) collectGarbage() {
	GinkgoHelper()
	found := false
	commands, err := filepath.Glob("/proc/[0-9]*/comm")
	Expect(err).NotTo(HaveOccurred())
	for _, path := range commands {
		if command, err := os.ReadFile(path); err == nil && string(command) == "worker-registry\n" {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			Expect(err).NotTo(HaveOccurred())
			Expect(syscall.Kill(pid, syscall.SIGUSR1)).To(Succeed())
			found = true // others of this machine collect garbage, too
		}
	}
	Expect(found).To(BeTrue(), "a registry runs on the node")
}

// hasBlob reports whether a repository has a blob.
func (w *workerServers) hasBlob(ctx context.Context, repository, digest string) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead,
		"http://"+w.registry+"/v2/workers/"+repository+"/blobs/"+digest, nil)
	if err != nil {
		return false, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	return res.StatusCode == http.StatusOK, res.Body.Close()
}

// waits waits for a time after which something is killed.
func (w *workerServers) waits(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	select {
	case <-ctx.Done():
		Fail("the spec was canceled")
	case <-time.After(d):
	}
}
