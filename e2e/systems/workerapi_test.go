package systems_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/workers/wrangler"
)

// uploaded is a script with a variable, and its configuration for wrangler.
const (
	uploadedScript = `export default { fetch(request, env) { return new Response(env.GREETING + ' VERSION') } }`
	wranglerConfig = `name = "uploaded"
main = "index.js"
compatibility_date = "2025-09-01"
workers_dev = false
[vars]
GREETING = "Hi"
`
)

// Tokens of the accounts of docs/worker-api.md and of another one.
const acmeToken, otherToken = "acme-token-with-at-least-16-bytes", "other-token-with-at-least-16-bytes"

// newWorkerAPI installs the upload API as its page describes, with a token of another account, and
// returns its URL.
func newWorkerAPI(ctx context.Context) string {
	GinkgoHelper()
	volume(ctx, "worker-api")
	apply(ctx, example("worker-api.md", "Install it", "team/worker-api.yaml", "namespace: team", "namespace: workers",
		"stringData:", "stringData:\n  other: "+otherToken))
	install := object(appsv1.GroupVersion.WithKind("KsctlInstall"), "workers", "worker-api")
	DeferCleanup(func(ctx SpecContext) {
		remove(ctx, install)
		gone(ctx, install)
	})
	becomes(ctx, install, "Ready", "True ")
	service := &corev1.Service{ObjectMeta: meta("workers", "worker-api")}
	Expect(get(ctx, service)).To(Succeed())
	// The rules of kube-proxy follow the readiness of the Pod.
	Eventually(ctx, request, soon).WithArguments(service.Spec.ClusterIP, 8787, "/readyz").
		Should(HavePrefix("200"))
	return "http://" + service.Spec.ClusterIP + ":8787"
}

// upload deploys the script with wrangler.
func upload(ctx context.Context, api, script string) {
	GinkgoHelper()
	if reason := wrangler.MissingRequirement(); reason != "" {
		Skip(reason)
	}
	dir, err := wrangler.Install(ctx)
	Expect(err).NotTo(HaveOccurred())
	project := GinkgoT().TempDir()
	for name, content := range map[string]string{"index.js": script, "wrangler.toml": wranglerConfig} {
		Expect(os.WriteFile(filepath.Join(project, name), []byte(content), 0o600)).To(Succeed())
	}
	c := wrangler.Client{Dir: dir, Home: GinkgoT().TempDir(), Server: api, Account: "acme", Token: acmeToken}
	out, err := c.Command(ctx, project, "deploy").CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
}

func (w *workerServers) uploads(ctx context.Context) {
	GinkgoHelper()
	w.newAccount(ctx, "acme")
	api := newWorkerAPI(ctx)
	upload(ctx, api, strings.Replace(uploadedScript, "VERSION", "1", 1))
	o := w.deployment("acme.uploaded")
	becomes(ctx, o, "Ready", "True ")
	w.serves(ctx, "acme", 8082, "/", "200 Hi 1")
	w.settles(ctx, "acme")

	By("uploading the same again")
	jobs, generation := w.jobs(ctx), o.GetGeneration()
	upload(ctx, api, strings.Replace(uploadedScript, "VERSION", "1", 1))
	Expect(get(ctx, o)).To(Succeed())
	Expect(o.GetGeneration()).To(Equal(generation))
	Expect(w.jobs(ctx)).To(Equal(jobs))

	By("uploading another version")
	upload(ctx, api, strings.Replace(uploadedScript, "VERSION", "2", 1))
	w.serves(ctx, "acme", 8082, "/", "200 Hi 2")

	By("sending the token of another account")
	script := api + "/client/v4/accounts/acme/workers/scripts/uploaded"
	for token, want := range map[string]int{otherToken: http.StatusForbidden,
		"unknown-token-of-nobody": http.StatusUnauthorized} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
			req, err := http.NewRequestWithContext(ctx, method, script, nil)
			Expect(err).NotTo(HaveOccurred())
			req.Header.Set("Authorization", "Bearer "+token)
			res, err := http.DefaultClient.Do(req)
			Expect(err).NotTo(HaveOccurred())
			Expect(res.Body.Close()).To(Succeed())
			Expect(res).To(HaveHTTPStatus(want), method)
		}
	}

	By("deleting the script")
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, script, nil)
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Authorization", "Bearer "+acmeToken)
	res, err := http.DefaultClient.Do(req)
	Expect(err).NotTo(HaveOccurred())
	Expect(res.Body.Close()).To(Succeed())
	Expect(res).To(HaveHTTPStatus(http.StatusOK))
	gone(ctx, o)
	gone(ctx, &corev1.Secret{ObjectMeta: meta("workers", "acme.uploaded")})
	w.serves(ctx, "acme", 8081, "/?a=1&b=2", "200 sum 3")
}

// uploadTimeout includes the installation of wrangler.
const uploadTimeout = 15 * time.Minute
