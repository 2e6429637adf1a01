package systems_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	k8sappsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

func minimart(name string) *unstructured.Unstructured {
	return object(schema.GroupVersionKind{Group: "charts.samutup.com", Version: "v1alpha1", Kind: "Minimart"}, "shop",
		name)
}

// fetch requests a path of a Service from its cluster IP, through kube-proxy's rules.
func fetch(ctx context.Context, service *corev1.Service, path string) (string, error) {
	if err := get(ctx, service); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	url := "http://" + service.Spec.ClusterIP + ":" + strconv.Itoa(int(service.Spec.Ports[0].Port)) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return strconv.Itoa(res.StatusCode) + " " + strings.TrimSpace(string(body)), err
}

// replicasBecome waits until a Deployment has a number of ready replicas.
func replicasBecome(ctx context.Context, name string, want int32) {
	GinkgoHelper()
	d := &k8sappsv1.Deployment{ObjectMeta: meta("shop", name)}
	Eventually(ctx, func() (int32, error) {
		err := get(ctx, d)
		return d.Status.ReadyReplicas, err
	}, soon).Should(Equal(want))
}

var _ = Describe("Minimart", func() {
	It("serves HTTP, is changed by a client and by a commit, corrected and removed", func(ctx SpecContext) {
		apply(ctx, example("minimart.md", "Publish it", "shop/account.yaml"))
		publish(ctx, "minimart", example("minimart.md", "Publish it", "platform/minimart.yaml"), "shop")

		By("creating two objects in one namespace")
		apply(ctx, example("minimart.md", "Create objects", "shop/minimarts.yaml"))
		corner, station := minimart("corner"), minimart("station")
		becomes(ctx, corner, "Ready", "True ")
		becomes(ctx, station, "Ready", "True ")
		replicasBecome(ctx, "corner", 2)
		replicasBecome(ctx, "station", 1)
		service := &corev1.Service{ObjectMeta: meta("shop", "station")}
		for path, want := range map[string]string{"/liveness": "200 alive", "/readiness": "200 ready",
			"/minimart-stat": "200 stat", "/minimart-bev": "200 bev", "/other": "404 404 page not found"} {
			Eventually(ctx, fetch, soon).WithArguments(service, path).Should(Equal(want))
		}
		Expect(status(corner)).To(And(ContainSubstring(`"url":"http://corner.example.com"`),
			ContainSubstring(`"release":"corner"`)))
		Expect(status(station)).To(ContainSubstring(`"url":"http://` + service.Spec.ClusterIP + `:80"`))
		Expect(get(ctx, &networkingv1.Ingress{ObjectMeta: meta("shop", "corner")})).To(Succeed())

		By("changing one with the typed client of the example")
		scale := exec.CommandContext(ctx, "go", "run", "./minimart", "-namespace", "shop", "-name", "corner",
			"-min-replicas", "3")
		scale.Dir = harness.RepoPath("examples/library")
		scale.Env = append(os.Environ(), "KUBECONFIG="+plane.Kubeconfig())
		out, err := scale.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		Expect(string(out)).To(ContainSubstring("Minimart shop/corner has 3 replicas at http://corner.example.com"))
		autoscaler := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta("shop", "corner")}
		Expect(get(ctx, autoscaler)).To(Succeed())
		Expect(autoscaler.Spec.MinReplicas).To(HaveValue(BeEquivalentTo(3)))
		replicasBecome(ctx, "corner", 3)
		Expect(get(ctx, corner)).To(Succeed())
		limit, _, err := unstructured.NestedInt64(corner.Object, "spec", "autoscaling", "maxReplicas")
		Expect(err).NotTo(HaveOccurred())
		Expect(limit).To(BeEquivalentTo(4), "fields that the client does not change stay")

		By("changing one by a commit")
		changeByCommit(ctx)

		By("deleting parts by hand")
		comesBack(ctx, service)
		Eventually(ctx, fetch, soon).WithArguments(service, "/minimart-stat").Should(Equal("200 stat"))
		comesBack(ctx, &corev1.ConfigMap{ObjectMeta: meta("shop", "station")})

		By("restarting the controller, and changing the settings of the program")
		restart()
		change(ctx, station, `{"spec": {"apps": {"httpport": 8003, "rest": {"stat": "/statistics"}}}}`)
		becomes(ctx, station, "Ready", "True ")
		Eventually(ctx, fetch, soon).WithArguments(service, "/statistics").Should(Equal("200 stat"))
		Eventually(ctx, fetch, soon).WithArguments(service, "/minimart-bev").Should(Equal("200 bev"))

		By("deleting one, while the other one serves")
		remove(ctx, corner)
		gone(ctx, corner)
		gone(ctx, &k8sappsv1.Deployment{ObjectMeta: meta("shop", "corner")})
		Expect(fetch(ctx, service, "/statistics")).To(Equal("200 stat"))
	}, SpecTimeout(30*time.Minute))
})

// changeByCommit installs an object of a Git repository, changes it by a commit, and removes it.
func changeByCommit(ctx context.Context) {
	GinkgoHelper()
	const heading = "Change one by a commit"
	repo, err := framework.GitServer().NewRepo(ctx, "fleet")
	Expect(err).NotTo(HaveOccurred())
	commit := func(replace ...string) {
		GinkgoHelper()
		files := map[string]string{}
		for _, file := range []string{"stacks/shops/stack.yaml", "stacks/shops/harbor.yaml"} {
			files[file] = example("minimart.md", heading, file, replace...)
		}
		_, err := repo.Commit(ctx, files, "a change")
		Expect(err).NotTo(HaveOccurred())
	}
	commit()
	apply(ctx, example("minimart.md", heading, "shop/install.yaml", "https://git.example.com/fleet.git", repo.URL(),
		"interval: 1m", "interval: 1s"))
	apps := appsv1.GroupVersion
	install, source := object(apps.WithKind("KsctlInstall"), "shop", "shops"),
		object(apps.WithKind("KsctlSource"), "shop", "fleet")
	becomes(ctx, install, "Ready", "True ")
	replicasBecome(ctx, "harbor", 1)
	commit("replicaCount: 1", "replicaCount: 2")
	replicasBecome(ctx, "harbor", 2)
	becomes(ctx, install, "Ready", "True ")
	remove(ctx, install)
	gone(ctx, install)
	gone(ctx, minimart("harbor"))
	gone(ctx, &k8sappsv1.Deployment{ObjectMeta: meta("shop", "harbor")})
	remove(ctx, source)
	gone(ctx, source)
}
