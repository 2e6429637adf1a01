package autoscaler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
	"github.com/ksctl/gitops/e2e/tools"
)

// fluxSettings are the objects of a Flux installation.
const fluxSettings = `
apiVersion: v1
kind: Namespace
metadata: {name: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: source-controller, namespace: flux-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kustomize-controller, namespace: flux-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: cluster-reconciler}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, namespace: flux-system, name: source-controller}
- {kind: ServiceAccount, namespace: flux-system, name: kustomize-controller}
`

var _ = Describe("A KsctlAutoScaler in a Git repository", Ordered, func() {
	var git *gitserver.Server
	programs := map[string]*harness.Process{}

	BeforeAll(func(ctx SpecContext) {
		binaries, err := tools.Build(ctx, GinkgoWriter, tools.KustomizeController, tools.SourceController)
		Expect(err).NotTo(HaveOccurred())
		definitions, err := harness.FluxCRDPaths(ctx, GinkgoT().TempDir())
		Expect(err).NotTo(HaveOccurred())
		for _, path := range definitions {
			Expect(h.ControlPlane.Apply(ctx, path)).To(Succeed())
		}
		Expect(h.ControlPlane.ApplyYAML(ctx, []byte(fluxSettings))).To(Succeed())
		git = framework.GitServer()
		storage, err := cluster.FreeAddress()
		Expect(err).NotTo(HaveOccurred())
		start := func(account string, flags ...string) {
			config, err := h.ControlPlane.ConfigFor(ctx, "flux-system", account)
			Expect(err).NotTo(HaveOccurred())
			p, err := h.StartProgram(binaries[account], config,
				append([]string{"--watch-all-namespaces=true", "--enable-leader-election=false"}, flags...)...)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() { _ = p.Stop() }) // its exit status reports the signal
			programs[account] = p
		}
		start(tools.SourceController, "--storage-path="+GinkgoT().TempDir(), "--storage-addr="+storage,
			"--storage-adv-addr="+storage)
		start(tools.KustomizeController, "--no-cross-namespace-refs=true")
	}, NodeTimeout(20*time.Minute))

	JustAfterEach(func() {
		if CurrentSpecReport().Failed() {
			for name, p := range programs {
				GinkgoWriter.Println(name, "\n"+p.Log())
			}
		}
	})

	It("scales as pushed, and Flux detects no drift", func(ctx SpecContext) {
		s := newBareTestCluster(ctx, func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{pool("small", 1, 1), pool("large", 1, 2)}
		})
		s.as.Spec.Agent = appsv1.AgentEndpoint{Address: s.startAgent(ctx), SecretRef: localRef("agent")}
		r := s.syncWithFlux(ctx, git)

		By("the first commit")
		first := r.head(ctx)
		Eventually(ctx, r.readySummary, soon).WithArguments(ctx).
			Should(HavePrefix(first+" True "), "Flux waits until the applied objects are ready")
		Expect(s.readySummary(ctx)()).To(HavePrefix("True "))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		Eventually(ctx, s.poolCounts(ctx, "large"), soon).Should(Equal("1/1/1/0/0"))
		// the label of the pool is set after the node is counted
		Eventually(ctx, s.nodes(ctx), soon).Should(ConsistOf("0:small", "1:large"))
		Expect(s.as.Generation).To(Equal(int64(1)))
		s.runAutoscaler(ctx)
		s.createPods(ctx, "small", 3)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(1))
		Consistently(ctx, s.nodes(ctx), 2*time.Second).Should(HaveLen(2), "maxSize is that of the repository")

		By("git push")
		s.as.Spec.Pools[0].MaxSize = 3
		second := r.push(ctx)
		Eventually(ctx, s.runningPods(ctx), soon).Should(Equal(3))
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:large", "2:small", "3:small"))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("3/3/3/0/0"))
		Eventually(ctx, r.readySummary, soon).WithArguments(ctx).Should(HavePrefix(second + " True "))
		Expect(s.get(ctx)).To(Succeed())
		Expect(s.as.Generation).To(Equal(int64(2)), "only the commit changed the spec")
		applied := r.appliedFields(ctx)

		By("without pods: down to minSize, the last machines first, and none of the other pool")
		s.deletePods(ctx)
		Eventually(ctx, func(g Gomega) []string {
			now, err := s.nodes(ctx)()
			g.Expect(err).NotTo(HaveOccurred())
			Expect(indexes(now)).To(ConsistOf(upTo(len(now))), "only the last machines are deleted: %v", now)
			return now
		}, soon, 50*time.Millisecond).Should(ConsistOf("0:small", "1:large"))
		Consistently(ctx, s.nodes(ctx), 2*time.Second).Should(ConsistOf("0:small", "1:large"))
		Eventually(ctx, s.poolCounts(ctx, "small"), soon).Should(Equal("1/1/1/0/0"))
		Expect(s.poolCounts(ctx, "large")()).To(Equal("1/1/1/0/0"))

		By("Flux reconciling again, like at each interval")
		for range 3 {
			r.requestReconcile(ctx, r.kustomization)
			Eventually(ctx, r.readySummary, soon).WithArguments(ctx).Should(HavePrefix(second + " True "))
		}
		Expect(r.appliedFields(ctx)).To(Equal(applied), "Flux applied nothing")
		Expect(s.get(ctx)).To(Succeed())
		Expect(s.as.Generation).To(Equal(int64(2)))

		By("a commit that removes the KsctlAutoScaler")
		Expect(os.Remove(filepath.Join(r.clone, "autoscaler.yaml"))).To(Succeed())
		third := r.commitAndPush(ctx)
		Eventually(ctx, r.readySummary, soon).WithArguments(ctx).Should(HavePrefix(third + " True "))
		Eventually(ctx, absent(ctx, s.as), soon).Should(BeTrue())
		Expect(s.nodes(ctx)()).To(ConsistOf("0:small", "1:large"), "machines stay")
	}, SpecTimeout(20*time.Minute))
})

// repository is a Git repository from which Flux syncs the objects of a cluster.
type repository struct {
	cluster       *testCluster
	git           *gitserver.Server
	repo          *gitserver.Repo
	clone         string // a working tree
	source        *sourcev1.GitRepository
	kustomization *unstructured.Unstructured
}

// syncWithFlux lets Flux sync the objects of a cluster from a repository.
func (s *testCluster) syncWithFlux(ctx context.Context, git *gitserver.Server) *repository {
	GinkgoHelper()
	repo, err := git.NewRepo(ctx, s.ns)
	Expect(err).NotTo(HaveOccurred())
	r := &repository{cluster: s, git: git, repo: repo, clone: GinkgoT().TempDir()}
	_, err = repo.Commit(ctx, map[string]string{"README.md": "# Clusters\n"}, "first")
	Expect(err).NotTo(HaveOccurred())
	_, err = git.Git(ctx, r.clone, "clone", "--quiet", repo.URL(), ".")
	Expect(err).NotTo(HaveOccurred())
	hour := metav1.Duration{Duration: time.Hour}
	r.source = &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "fleet"},
		Spec: sourcev1.GitRepositorySpec{URL: repo.URL(),
			Reference: &sourcev1.GitRepositoryRef{Branch: gitserver.DefaultBranch}, Interval: hour}}
	create(ctx, r.source)
	Expect(os.WriteFile(filepath.Join(r.clone, "cluster.yaml"), manifest(s.cluster(), "KsctlCluster"), 0o600)).
		To(Succeed())
	r.push(ctx)
	r.kustomization = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kustomize.toolkit.fluxcd.io/v1",
		"kind":     "Kustomization",
		"metadata": map[string]any{"namespace": s.ns, "name": "clusters"},
		"spec": map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}, "path": "./",
			"interval": "1h", "retryInterval": "1s",
			"timeout": "1m", "wait": true, "prune": true, "serviceAccountName": harness.Deployer}}}
	create(ctx, r.kustomization)
	DeferCleanup(func(ctx SpecContext) {
		Expect(h.ControlPlane.Client().
			Patch(ctx, r.kustomization, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))).
			To(Succeed())
	})
	return r
}

// manifest returns the manifest of an object like a user writes it.
func manifest(o client.Object, kind string) []byte {
	GinkgoHelper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	Expect(err).NotTo(HaveOccurred())
	data, err := yaml.Marshal(map[string]any{"apiVersion": clusterv1.GroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"namespace": o.GetNamespace(), "name": o.GetName()}, "spec": object["spec"]})
	Expect(err).NotTo(HaveOccurred())
	return data
}

// push writes the KsctlAutoScaler to the working tree, commits and pushes it.
func (r *repository) push(ctx context.Context) (revision string) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(r.clone, "autoscaler.yaml"), manifest(r.cluster.as, "KsctlAutoScaler"), 0o600)).
		To(Succeed())
	return r.commitAndPush(ctx)
}

// commitAndPush commits and pushes the working tree, and requests a reconcile of Flux's source
// like a push receiver does.
func (r *repository) commitAndPush(ctx context.Context) (revision string) {
	GinkgoHelper()
	for _, args := range [][]string{{"add", "--all"},
		{"-c", "user.name=ann", "-c", "user.email=ann@example.com", "commit", "--quiet", "--message", "change"},
		{"push", "--quiet", "origin", "HEAD:refs/heads/" + gitserver.DefaultBranch}} {
		_, err := r.git.Git(ctx, r.clone, args...)
		Expect(err).NotTo(HaveOccurred())
	}
	r.requestReconcile(ctx, r.source)
	return r.head(ctx)
}

func (r *repository) head(ctx context.Context) (revision string) {
	GinkgoHelper()
	id, err := r.repo.Head(ctx, gitserver.DefaultBranch)
	Expect(err).NotTo(HaveOccurred())
	return gitserver.DefaultBranch + "@sha1:" + id
}

// requestReconcile requests a reconcile of a Flux object, and waits until it is handled.
func (r *repository) requestReconcile(ctx context.Context, o client.Object) {
	GinkgoHelper()
	at := fmt.Sprint(time.Now().UnixNano())
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, at)
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)))).To(Succeed())
	u := &unstructured.Unstructured{}
	gvk, err := h.ControlPlane.Client().GroupVersionKindFor(o)
	Expect(err).NotTo(HaveOccurred())
	u.SetGroupVersionKind(gvk)
	Eventually(ctx, func() (string, error) {
		err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), u)
		handled, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
		return handled, err
	}, soon).Should(Equal(at))
}

// readySummary returns the last applied revision, and status, reason and message of the Ready
// condition of the Kustomization.
func (r *repository) readySummary(ctx context.Context) (string, error) {
	if err := h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(r.kustomization),
		r.kustomization); err != nil {
		return "", err
	}
	at, _, _ := unstructured.NestedString(r.kustomization.Object, "status", "lastAppliedRevision")
	conditions, _, _ := unstructured.NestedSlice(r.kustomization.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == appsv1.ReadyCondition {
			return fmt.Sprintf("%s %s %s: %s", at, c["status"], c["reason"], c["message"]), nil
		}
	}
	return at, nil
}

// appliedFields returns the managed fields of Flux on the cluster's objects, with their times. It
// checks that no other manager has a field of a spec.
func (r *repository) appliedFields(ctx context.Context) []string {
	GinkgoHelper()
	var out []string
	for _, o := range []client.Object{r.cluster.as.DeepCopy(), r.cluster.cluster()} {
		Expect(h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		for _, m := range o.GetManagedFields() {
			var fields map[string]any
			Expect(json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields)).To(Succeed())
			if m.Manager == tools.KustomizeController {
				out = append(out, o.GetName()+" "+string(m.Operation)+" "+m.Time.String()+" "+m.FieldsV1.GetRawString())
				continue
			}
			Expect(fields).NotTo(HaveKey("f:spec"), "%s has fields of the spec of %s", m.Manager, o.GetName())
		}
	}
	Expect(out).To(HaveLen(2))
	return out
}
