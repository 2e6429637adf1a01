package flux_test

import (
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bucketName is the only bucket of the server.
const bucketName = "stacks"

// bucketServer implements the part of S3 (https://docs.aws.amazon.com/AmazonS3/latest/API) that
// a reader of one bucket needs: bucket existence, object list and objects. It does not
// authenticate requests.
type bucketServer struct {
	mu      sync.Mutex
	objects map[string]string
}

func (s *bucketServer) put(key, content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = content
}

func (s *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, found := strings.CutPrefix(r.URL.Path, "/"+bucketName)
	key = strings.TrimPrefix(key, "/")
	content, there := s.objects[key]
	switch {
	case !found || (key != "" && !there):
		w.WriteHeader(http.StatusNotFound)
	case key != "":
		w.Header().Set("ETag", `"`+etag(content)+`"`)
		http.ServeContent(w, r, key, time.Unix(1_000_000, 0), strings.NewReader(content))
	case r.Method == http.MethodGet:
		type object struct {
			Key, LastModified, ETag string
			Size                    int
		}
		list := struct {
			XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
			Name     string
			KeyCount int
			Contents []object
		}{Name: bucketName, KeyCount: len(s.objects)}
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			list.Contents = append(list.Contents,
				object{key, "1970-01-12T13:46:40Z", `"` + etag(s.objects[key]) + `"`, len(s.objects[key])})
		}
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(list)
	}
}

func etag(content string) string {
	sum := md5.Sum([]byte(content))
	return hex.EncodeToString(sum[:])
}

var _ = Describe("A Bucket", func() {
	It("is applied with its objects, and with later changes", func(ctx SpecContext) {
		s := &bucketServer{objects: map[string]string{"stacks/app/stack.yaml": stack,
			"stacks/app/base/base.yaml":   configMap("base", "1"),
			"stacks/app/extra/extra.yaml": configMap("extra", "1")}}
		server := httptest.NewServer(s)
		DeferCleanup(server.Close)
		w := newFixture(ctx, map[string]string{
			"clusters/prod/install.yaml": strings.ReplaceAll(installManifest, "kind: GitRepository, name: fleet",
				"kind: Bucket, name: stacks"),
			"clusters/prod/bucket.yaml": fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: reader}
stringData: {accesskey: reader, secretkey: e2e-reader-key}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: Bucket
metadata: {name: stacks}
spec:
  provider: generic
  bucketName: %s
  endpoint: %s
  region: us-east-1
  insecure: true
  secretRef: {name: reader}
  interval: 1h
`, bucketName, strings.TrimPrefix(server.URL, "http://"))})
		k, in := w.sync(ctx, "cluster", "./clusters/prod", ""), w.object("KsctlInstall", "app")
		readyAt(ctx, k, w.head(ctx))
		bucket := &sourcev1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "stacks"}}
		Expect(get(ctx, bucket)).To(Succeed())
		first := bucket.Status.Artifact.Revision
		readyAt(ctx, in, first)
		Expect(value(ctx, w.ns, "extra", "value")).To(Equal("1"))

		s.put("stacks/app/extra/extra.yaml", configMap("extra", "2"))
		requestReconcile(ctx, bucket)
		Eventually(ctx, func() (string, error) {
			err := get(ctx, bucket)
			return bucket.Status.Artifact.Revision, err
		}, soon).ShouldNot(Equal(first))
		readyAt(ctx, in, bucket.Status.Artifact.Revision)
		Expect(value(ctx, w.ns, "extra", "value")).To(Equal("2"))
	}, SpecTimeout(15*time.Minute))
})
