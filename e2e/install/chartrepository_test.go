package install_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	ociimage "github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ksctl/gitops/e2e/cluster/artifacts"
)

// chartRepo is a chart repository over TLS with basic authentication. It has an index at its
// root and an OCI registry below /v2/.
type chartRepo struct {
	*httptest.Server
	mu       sync.Mutex
	password string
	down     bool
	files    map[string][]byte
	// entries of the index, by chart and version.
	entries      map[string]map[string]string
	requestCount int
}

func newChartRepo(password string) *chartRepo {
	r := &chartRepo{password: password, files: map[string][]byte{}, entries: map[string]map[string]string{}}
	oci := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requestCount++
		if r.down {
			panic(http.ErrAbortHandler)
		}
		if user, pass, _ := req.BasicAuth(); user != "me" || pass != r.password {
			w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		data, there := r.files[req.URL.Path]
		switch {
		case strings.HasPrefix(req.URL.Path, "/v2/"):
			oci.ServeHTTP(w, req)
		case req.URL.Path == "/index.yaml":
			_, _ = fmt.Fprint(w, "apiVersion: v1\nentries:\n")
			for chart, versions := range r.entries {
				_, _ = fmt.Fprintf(w, "  %s:\n", chart)
				for _, entry := range versions {
					_, _ = fmt.Fprint(w, entry)
				}
			}
		case there:
			_, _ = w.Write(data)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	r.Config.ErrorLog = log.New(GinkgoWriter, "charts: ", 0)
	DeferCleanup(r.Close)
	return r
}

func (r *chartRepo) oci() string { return "oci://" + strings.TrimPrefix(r.URL, "https://") + "/charts" }

// change runs f while no request is served.
func (r *chartRepo) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *chartRepo) requests() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requestCount
}

// pack returns the archive of a chart with one ConfigMap that has the name of the chart, and
// its digest. The archive is unique to the repository, so that no spec finds an archive that
// another spec has cached.
func (r *chartRepo) pack(chart, version, value string) ([]byte, string) {
	GinkgoHelper()
	data, err := artifacts.Archive(artifacts.Files(map[string]string{
		chart + "/Chart.yaml":       "apiVersion: v2\nname: " + chart + "\nversion: " + version + "\n",
		chart + "/templates/a.yaml": configMap(chart, value),
		chart + "/README.md":        r.URL}))
	Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(data)
	return data, "sha256:" + hex.EncodeToString(sum[:])
}

// add adds the chart "web" to the index, and returns its digest.
func (r *chartRepo) add(version, value string) string {
	GinkgoHelper()
	return r.addChart("web", version, value)
}

func (r *chartRepo) addChart(chart, version, value string) string {
	GinkgoHelper()
	data, digest := r.pack(chart, version, value)
	file := chart + "-" + version + ".tgz"
	r.change(func() {
		r.files["/"+file] = data
		if r.entries[chart] == nil {
			r.entries[chart] = map[string]string{}
		}
		r.entries[chart][version] = fmt.Sprintf("  - {name: %s, version: %s, digest: %s, urls: [%s]}\n", chart, version,
			strings.TrimPrefix(digest, "sha256:"), file)
	})
	return digest
}

// push pushes the chart "web" to the registry, and returns its digest and that of its manifest.
func (r *chartRepo) push(version, value string) (digest, manifest string) {
	GinkgoHelper()
	data, digest := r.pack("web", version, value)
	image := ociimage.ConfigMediaType(ociimage.MediaType(empty.Image, types.OCIManifestSchema1),
		"application/vnd.cncf.helm.config.v1+json")
	image, err := ociimage.Append(image,
		ociimage.Addendum{Layer: static.NewLayer(data, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")})
	Expect(err).NotTo(HaveOccurred())
	tag, err := name.NewTag(strings.TrimPrefix(r.oci(), "oci://") + "/web:" + version)
	Expect(err).NotTo(HaveOccurred())
	Expect(remote.Write(tag, image, remote.WithTransport(r.Client().Transport),
		remote.WithAuth(authn.FromConfig(authn.AuthConfig{Username: "me", Password: r.password})))).To(Succeed())
	made, err := image.Digest()
	Expect(err).NotTo(HaveOccurred())
	return digest, made.String()
}

// login and authority return the Secrets for access to the repository.
func login(ns, password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: objectMeta(ns, "login"),
		StringData: map[string]string{"username": "me", "password": password}}
}

func (r *chartRepo) authority(ns string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: objectMeta(ns, "authority"),
		Data: map[string][]byte{"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: r.Certificate().Raw})}}
}
