package flux_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

// pushesVariable is the environment variable with the number of pushes per kind of source.
// Without it the specs are skipped: see make pushes.
const pushesVariable = "KSCTL_E2E_PUSHES"

// pushToken is the token that the repository's hook sends and that the Secret contains.
const pushToken = "a-token-that-pushes-come-with"

// pushFixture is a fixture with a clone from which the spec pushes.
type pushFixture struct {
	fixture
	clone string // a working tree
}

// newPushFixture creates an install of a source, which is a GitRepository or a KsctlSource with
// an interval of an hour. The repository's hook requests its reconciles.
func newPushFixture(ctx SpecContext, kind string) pushFixture {
	GinkgoHelper()
	p := pushFixture{fixture: newFixture(ctx, content(nil)), clone: GinkgoT().TempDir()}
	_, err := git.Git(ctx, p.clone, "clone", "--quiet", p.repo.URL(), ".")
	Expect(err).NotTo(HaveOccurred())
	hour := &metav1.Duration{Duration: time.Hour}
	address := func() string {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer GinkgoRecover()
			requestReconcile(r.Context(), p.object(kind, "fleet"))
		}))
		DeferCleanup(server.Close)
		return server.URL
	}
	if kind == "KsctlSource" {
		src := &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: "fleet"},
			Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Interval: hour},
				Git: &appsv1.GitSource{URL: p.repo.URL()},
				Webhook: &appsv1.SourceWebhook{Type: appsv1.GitLabWebhook,
					SecretRef: fluxmeta.LocalObjectReference{Name: "token"}}}}
		Expect(h.ControlPlane.Client().Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns,
			Name: "token"},
			StringData: map[string]string{"token": pushToken}})).To(Succeed())
		Expect(h.ControlPlane.Client().Create(ctx, src)).To(Succeed())
		address = func() string {
			Eventually(ctx, func() (string, error) {
				return src.Status.WebhookPath, get(ctx, src)
			}, soon).Should(HavePrefix("/hook/"))
			return "http://" + receiver + src.Status.WebhookPath
		}
	}
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns, Name: "app"},
		Spec: appsv1.KsctlInstallSpec{Schedule: appsv1.Schedule{Interval: hour},
			SourceRef: appsv1.SourceRef{Kind: kind, Name: "fleet"},
			Path:      "stacks", Stack: "app", ServiceAccountName: "deployer"}}
	Expect(h.ControlPlane.Client().Create(ctx, in)).To(Succeed())
	readyAt(ctx, p.object("KsctlInstall", "app"), p.head(ctx))
	p.hook(address())
	return p
}

// hook makes the repository send push events like GitLab.
func (p pushFixture) hook(address string) {
	GinkgoHelper()
	script := fmt.Sprintf(`#!/bin/sh
read -r before after ref
exec curl --silent --show-error --fail --noproxy '*' --header 'Content-Type: application/json' --header 'X-Gitlab-Event: Push Hook' \
  --header 'X-Gitlab-Token: %s' --data "{\"object_kind\":\"push\",\"ref\":\"$ref\",\"before\":\"$before\",\"after\":\"$after\",\"project\":{\"git_http_url\":\"%s\"}}" '%s'
`, pushToken, p.repo.URL(), address)
	Expect(os.MkdirAll(filepath.Join(p.repo.Dir(), "hooks"), 0o700)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(p.repo.Dir(), "hooks", "post-receive"), []byte(script), 0o700)).To(Succeed())
}

// push commits a value of one ConfigMap and pushes. It returns the time when the push began.
func (p pushFixture) push(ctx context.Context, value string) time.Time {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(p.clone, "stacks", "app", "extra", "extra.yaml"),
		[]byte(configMap("extra", value)), 0o600)).To(Succeed())
	_, err := git.Git(ctx, p.clone, "-c", "user.name=ann", "-c", "user.email=ann@example.com", "commit", "--quiet",
		"--all", "--message", value)
	Expect(err).NotTo(HaveOccurred())
	began := time.Now()
	_, err = git.Git(ctx, p.clone, "push", "--quiet", "origin", "HEAD:refs/heads/"+gitserver.DefaultBranch)
	Expect(err).NotTo(HaveOccurred())
	return began
}

// awaitValue waits until a watch delivers a ConfigMap with a value.
func awaitValue(ctx context.Context, events watch.Interface, value string) {
	GinkgoHelper()
	for {
		select {
		case e, ok := <-events.ResultChan():
			Expect(ok).To(BeTrue(), "the watch stays open")
			if cm, is := e.Object.(*corev1.ConfigMap); is && cm.Data["value"] == value {
				return
			}
		case <-ctx.Done():
			Fail("the ConfigMap does not get the value " + value)
		}
	}
}

var _ = Describe("From git push to the object applied", func() {
	if os.Getenv(pushesVariable) == "" {
		return
	}
	DescribeTable("the latency is reported", func(ctx SpecContext, kind string) {
		n, err := strconv.Atoi(os.Getenv(pushesVariable))
		Expect(err).NotTo(HaveOccurred())
		Expect(n).To(BeNumerically(">", 0))
		p := newPushFixture(ctx, kind)
		events, err := h.ControlPlane.Client().Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(p.ns),
			client.MatchingFields{"metadata.name": "extra"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(events.Stop)
		var took, pushing []time.Duration
		for i := range n {
			v := fmt.Sprint("push ", i)
			began := p.push(ctx, v)
			pushing = append(pushing, time.Since(began))
			awaitValue(ctx, events, v)
			took = append(took, time.Since(began))
		}
		median := func(all []time.Duration) time.Duration {
			slices.Sort(all)
			return ((all[(n-1)/2] + all[n/2]) / 2).Round(time.Millisecond)
		}
		AddReportEntry(fmt.Sprintf("%s, %d pushes: median %s, slowest %s; git push itself: median %s",
			kind, n, median(took), took[n-1].Round(time.Millisecond), median(pushing)))
	},
		Entry("through source-controller", SpecTimeout(15*time.Minute), "GitRepository"),
		Entry("through a KsctlSource with a webhook", SpecTimeout(15*time.Minute), "KsctlSource"))
})
