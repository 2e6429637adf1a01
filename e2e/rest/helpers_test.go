package rest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/e2e/cluster"
)

// endpoint is an endpoint of a controller.
type endpoint struct{ addr string }

// answer is an answer of an endpoint.
type answer struct {
	code   int
	header http.Header
	body   string
}

// status returns the Status in the body.
func (a *answer) status() metav1.Status {
	GinkgoHelper()
	var s metav1.Status
	Expect(json.Unmarshal([]byte(a.body), &s)).To(Succeed(), a.body)
	return s
}

// object returns the object in the body.
func (a *answer) object() *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(u.UnmarshalJSON([]byte(a.body))).To(Succeed(), a.body)
	return u
}

// try sends a request with the token of an account. headers are pairs.
func (e endpoint) try(ctx context.Context, account, method, path, body string, headers ...string) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+e.addr+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token := tokens[account]; token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	switch method {
	case http.MethodPut:
		req.Header.Set("Content-Type", "application/json")
	case http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	content, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(content)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	scanner.Record("the answers", string(text))
	return &answer{resp.StatusCode, resp.Header, string(text)}, nil
}

// send is try for the account editor, and expects a code.
func (e endpoint) send(ctx context.Context, code int, method, path, body string, headers ...string) *answer {
	GinkgoHelper()
	return e.sendAs(ctx, "editor", code, method, path, body, headers...)
}

func (e endpoint) sendAs(ctx context.Context, account string, code int, method, path, body string,
	headers ...string) *answer {
	GinkgoHelper()
	a, err := e.try(ctx, account, method, path, body, headers...)
	Expect(err).NotTo(HaveOccurred())
	Expect(a.code).To(Equal(code), "%s %s: %s", method, path, a.body)
	return a
}

// shopPath returns the path of a Shop.
func shopPath(name string) string { return fmt.Sprintf("/v1/shops.%s/%s/%s", group, team, name) }

// shopJSON returns a Shop.
func shopJSON(host string) string {
	return fmt.Sprintf(`{"apiVersion": "shops.example.com/v1alpha1", "kind": "Shop", "spec": {"host": %q}}`,
		host)
}

// shopYAML returns a document of a Shop.
func shopYAML(name, host string) string {
	return fmt.Sprintf("# The shop %[1]s.\napiVersion: shops.example.com/v1alpha1\nkind: Shop\n"+
		"metadata:\n  name: %[1]s\n  namespace: %[2]s\nspec:\n  host: %[3]s # for customers\n", name, team, host)
}

// liveShop returns a Shop in the cluster; nil if there is none.
func liveShop(ctx context.Context, name string) *unstructured.Unstructured {
	GinkgoHelper()
	a := passing.sendAny(ctx, "GET", shopPath(name))
	if a.code == http.StatusNotFound {
		return nil
	}
	Expect(a.code).To(Equal(http.StatusOK), a.body)
	return a.object()
}

func (e endpoint) sendAny(ctx context.Context, method, path string) *answer {
	GinkgoHelper()
	a, err := e.try(ctx, "editor", method, path, "")
	Expect(err).NotTo(HaveOccurred())
	return a
}

// git runs git in the repository.
func git(ctx context.Context, args ...string) string {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--git-dir", apps.Dir()}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred(), stderr.String())
	return strings.TrimRight(string(out), "\n")
}

// head returns the last commit of the branch.
func head(ctx context.Context) string {
	GinkgoHelper()
	return git(ctx, "rev-parse", "main")
}

// file returns a file at the last commit.
func file(ctx context.Context, path string) string {
	GinkgoHelper()
	return git(ctx, "show", "main:"+path) + "\n"
}

// push commits files as another writer does.
func push(ctx context.Context, message string, files map[string]string) {
	GinkgoHelper()
	_, err := apps.Commit(ctx, files, message)
	Expect(err).NotTo(HaveOccurred())
}

// apply applies a file of the repository, as a source controller does.
func apply(ctx context.Context, path string) {
	GinkgoHelper()
	Expect(plane.ApplyYAML(ctx, []byte(file(ctx, path)))).To(Succeed())
}

// requestsSince returns the requests of the endpoints since a mark.
func requestsSince(ctx context.Context, mark cluster.Mark) cluster.Requests {
	GinkgoHelper()
	requests, err := plane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	return requests.Where(cluster.ByUserAgent("ksctl-gitops-rest"))
}

func auditMark(ctx context.Context) cluster.Mark {
	GinkgoHelper()
	mark, err := plane.AuditMark(ctx)
	Expect(err).NotTo(HaveOccurred())
	return mark
}
