package source_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
)

// webhookVariable is the environment variable with the webhook's address and the repository's
// URL. When it is set, the test binary runs as the post-receive hook of a repository.
const webhookVariable = "KSCTL_E2E_WEBHOOK"

func TestMain(m *testing.M) {
	if to := os.Getenv(webhookVariable); to != "" {
		if err := sendPushEvents(to); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// hookToken is the token of the hook and of the Secret.
var hookToken = scanner.AddSecret("a-token-that-pushes-are-signed-with")

// sendPushEvents sends push events like GitHub does. Git's post-receive hook gets a line "before
// after ref" for each branch.
func sendPushEvents(target string) error {
	address, repository, _ := strings.Cut(target, " ")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var before, after, ref string
		if _, err := fmt.Sscan(lines.Text(), &before, &after, &ref); err != nil {
			return err
		}
		body, err := json.Marshal(map[string]any{"ref": ref, "before": before, "after": after,
			"repository": map[string]any{"full_name": "octo-org/elsewhere", "clone_url": repository}})
		if err != nil {
			return err
		}
		if _, err := send(context.Background(), address, body, signature(hookToken, body)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func signature(token string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// send sends a push event of GitHub and returns the status of the response.
func send(ctx context.Context, address string, body []byte, signature string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(string(body)))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Event", "push")
	req.Header.Set("X-GitHub-Delivery", fmt.Sprint(time.Now().UnixNano()))
	req.Header.Set("X-Hub-Signature-256", signature)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res.StatusCode, errorsOf(err, res.Body.Close())
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// webhookFixture is a source with an interval of an hour and a webhook.
type webhookFixture struct {
	repo  *gitserver.Repo
	clone string // a working tree
	src   *appsv1.KsctlSource
	// address of the webhook.
	address string
}

// newWebhookFixture creates a source, and waits until it has the first commit and its path.
func newWebhookFixture(ctx context.Context, ns, name, receiver string) *webhookFixture {
	GinkgoHelper()
	var err error
	w := &webhookFixture{clone: GinkgoT().TempDir()}
	w.repo, err = repo.NewRepo(ctx, ns+"/"+name)
	Expect(err).NotTo(HaveOccurred())
	_, err = w.repo.Commit(ctx, stack("0"), "first")
	Expect(err).NotTo(HaveOccurred())
	_, err = repo.Git(ctx, w.clone, "clone", "--quiet", w.repo.URL(), ".")
	Expect(err).NotTo(HaveOccurred())

	hour := &metav1.Duration{Duration: time.Hour}
	w.src = &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: hour, RetryInterval: hour},
			Git: &appsv1.GitSource{URL: w.repo.URL()},
			Webhook: &appsv1.SourceWebhook{Type: appsv1.GitHubWebhook,
				SecretRef: fluxmeta.LocalObjectReference{Name: name + "-token"}}}}
	Expect(h.ControlPlane.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
		Name: name + "-token"},
		StringData: map[string]string{"token": hookToken}})).To(Succeed())
	Expect(h.ControlPlane.Client().Create(ctx, w.src)).To(Succeed())
	Eventually(ctx, func() (string, error) {
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)
		if w.src.Status.Artifact == nil {
			return "", err
		}
		return w.src.Status.WebhookPath, err
	}, soon).Should(HavePrefix("/hook/"), "the path and the first artifact are in the status")
	w.address = "http://" + receiver + w.src.Status.WebhookPath
	return w
}

// installHook makes the repository send push events from now on.
func (w *webhookFixture) installHook() {
	GinkgoHelper()
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	// Git waits for its hook, and the race detector sleeps for a second at exit by default.
	script := fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 %s='%s %s' exec '%s'\n", webhookVariable, w.address,
		w.repo.URL(), self)
	Expect(os.MkdirAll(filepath.Join(w.repo.Dir(), "hooks"), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(w.repo.Dir(), "hooks", "post-receive"), []byte(script), 0o700)).To(Succeed())
}

// push makes a commit and pushes it to a branch. It returns the id of the commit and the time
// when the push began.
func (w *webhookFixture) push(ctx context.Context, value, branch string) (id string, began time.Time) {
	GinkgoHelper()
	for path, content := range stack(value) {
		Expect(os.WriteFile(filepath.Join(w.clone, filepath.FromSlash(path)), []byte(content), 0o600)).To(Succeed())
	}
	_, err := repo.Git(ctx, w.clone, "-c", "user.name=ann", "-c", "user.email=ann@example.com", "commit", "--quiet",
		"--all", "--message", value)
	Expect(err).NotTo(HaveOccurred())
	id, err = repo.Git(ctx, w.clone, "rev-parse", "HEAD")
	Expect(err).NotTo(HaveOccurred())
	began = time.Now()
	_, err = repo.Git(ctx, w.clone, "push", "--quiet", "origin", "HEAD:refs/heads/"+branch)
	Expect(err).NotTo(HaveOccurred())
	return id, began
}

// awaitCommit waits until the artifact of the source is of a commit.
func (w *webhookFixture) awaitCommit(ctx context.Context, id string) {
	GinkgoHelper()
	Eventually(ctx, w.revision, soon).WithPolling(2 * time.Millisecond).WithArguments(ctx).
		Should(HaveSuffix("sha1:" + id))
}

func (w *webhookFixture) revision(ctx context.Context) (string, error) {
	err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)
	return w.src.Status.Artifact.Revision, err
}

var _ = Describe("A KsctlSource with a webhook", func() {
	It("fetches a push on its webhook, and only then", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "webhook")
		receiver, err := cluster.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		framework.StartController(h, "--webhook-addr="+receiver)
		w, other := newWebhookFixture(ctx, ns, "src", receiver), newWebhookFixture(ctx, ns, "other", receiver)

		By("no request, or invalid ones")
		silent, _ := w.push(ctx, "silent", "main")
		body := fmt.Appendf(nil, `{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, w.repo.URL())
		wrong := fmt.Appendf(nil, `{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, other.repo.URL())
		branch := fmt.Appendf(nil, `{"ref":"refs/heads/x","repository":{"clone_url":%q}}`, w.repo.URL())
		for name, r := range map[string]struct {
			address string
			body    []byte
			token   string
			code    int
		}{
			"another token":      {w.address, body, "another-token-of-the-same-size-12345", http.StatusNotFound},
			"another path":       {w.address + "0", body, hookToken, http.StatusNotFound},
			"another repository": {w.address, wrong, hookToken, http.StatusOK},
			"another branch":     {w.address, branch, hookToken, http.StatusOK},
		} {
			Expect(send(ctx, r.address, r.body, signature(r.token, r.body))).To(Equal(r.code), name)
		}
		Consistently(ctx, w.revision, time.Second).WithArguments(ctx).
			ShouldNot(HaveSuffix(silent), "no webhook was sent for this push")

		By("a valid request")
		Expect(send(ctx, w.address, body, signature(hookToken, body))).To(Equal(http.StatusAccepted))
		w.awaitCommit(ctx, silent)
		asked := w.src.Annotations[appsv1.RequestedAtAnnotation]
		Expect(asked).NotTo(BeEmpty())
		Expect(w.src.Status.LastHandledReconcileAt).To(Equal(asked), "the source has handled the push")
		Expect(send(ctx, w.address, body, signature(hookToken, body))).To(Equal(http.StatusOK), "a replay")
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)).To(Succeed())
		Expect(w.src.Annotations).To(HaveKeyWithValue(appsv1.RequestedAtAnnotation, asked),
			"a replay requests no reconcile")

		By("pushing 20 times")
		w.installHook()
		var took []time.Duration
		for i := range 20 {
			id, began := w.push(ctx, fmt.Sprint(i), "main")
			w.awaitCommit(ctx, id)
			took = append(took, time.Since(began).Round(time.Millisecond))
		}
		asked = w.src.Annotations[appsv1.RequestedAtAnnotation]
		slices.Sort(took)
		GinkgoWriter.Printf("from git push to the source's revision: median %s, of %v\n", (took[9]+took[10])/2, took)
		AddReportEntry("from git push to the source's revision, median of 20", (took[9]+took[10])/2)
		_, _ = w.push(ctx, "x", "elsewhere")
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(w.src), w.src)).To(Succeed())
		Expect(w.src.Annotations).To(HaveKeyWithValue(appsv1.RequestedAtAnnotation, asked),
			"a push to another branch requests no reconcile")
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(other.src), other.src)).To(Succeed())
		Expect(other.src.Annotations).
			NotTo(HaveKey(appsv1.RequestedAtAnnotation), "no reconcile of the other source is requested")
	})

	It("fetches a push whose webhook reaches a replica that is not the leader", func(ctx SpecContext) {
		ns := framework.Namespace(ctx, h, "webhook")
		var receivers []string
		for range 2 {
			receiver, err := cluster.FreeAddress()
			Expect(err).NotTo(HaveOccurred())
			framework.StartController(h, "--webhook-addr="+receiver, "--enable-leader-election",
				"--leader-election-retry-period=500ms") // a stalled machine must not lose the lease
			receivers = append(receivers, receiver)
		}
		w := newWebhookFixture(ctx, ns, "src", receivers[0])
		for i, receiver := range receivers {
			id, _ := w.push(ctx, fmt.Sprint("told ", i), "main")
			body := fmt.Appendf(nil, `{"ref":"refs/heads/main","after":%q,"repository":{"clone_url":%q}}`, id,
				w.repo.URL())
			Eventually(ctx, func() (int, error) {
				return send(ctx, "http://"+receiver+w.src.Status.WebhookPath, body, signature(hookToken, body))
			}, soon).Should(Equal(http.StatusAccepted), "replica %d serves the path", i)
			w.awaitCommit(ctx, id)
		}
	})
})
