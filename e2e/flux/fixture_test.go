package flux_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
)

// fixture is a namespace and a repository with stacks and with objects that Flux syncs.
type fixture struct {
	ns   string
	repo *gitserver.Repo
}

// newFixture creates a namespace whose account "deployer" is cluster-admin, and a GitRepository
// "fleet" with an interval of an hour.
func newFixture(ctx SpecContext, files map[string]string) fixture {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, "flux")
	Expect(err).NotTo(HaveOccurred())
	return newFixtureIn(ctx, ns, files)
}

func newFixtureIn(ctx SpecContext, ns string, files map[string]string) fixture {
	GinkgoHelper()
	repo, err := git.NewRepo(ctx, ns)
	Expect(err).NotTo(HaveOccurred())
	w := fixture{ns: ns, repo: repo}
	_, err = repo.CommitDir(ctx, artifacts.Files(files), "first")
	Expect(err).NotTo(HaveOccurred())
	Expect(h.ControlPlane.Client().Create(ctx, &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: ns,
		Name: "fleet"},
		Spec: sourcev1.GitRepositorySpec{URL: repo.URL(),
			Reference: &sourcev1.GitRepositoryRef{Branch: gitserver.DefaultBranch},
			Interval:  metav1.Duration{Duration: time.Hour}}})).To(Succeed())
	return w
}

// commit replaces all files of the repository and requests a reconcile of the source, as a
// Receiver of notification-controller does after a push. It returns the revision.
func (w fixture) commit(ctx context.Context, files map[string]string) string {
	GinkgoHelper()
	id, err := w.repo.CommitDir(ctx, artifacts.Files(files), "change")
	Expect(err).NotTo(HaveOccurred())
	requestReconcile(ctx, w.object("GitRepository", "fleet"))
	return "main@sha1:" + id
}

// head returns the revision of the last commit.
func (w fixture) head(ctx context.Context) string {
	GinkgoHelper()
	id, err := w.repo.Head(ctx, gitserver.DefaultBranch)
	Expect(err).NotTo(HaveOccurred())
	return "main@sha1:" + id
}

// object returns an object without content, of a kind and name in the namespace.
func (w fixture) object(kind, name string) *unstructured.Unstructured {
	GinkgoHelper()
	versions := map[string]string{"Kustomization": "kustomize.toolkit.fluxcd.io/v1",
		"GitRepository": "source.toolkit.fluxcd.io/v1",
		"OCIRepository": "source.toolkit.fluxcd.io/v1", "ExternalArtifact": "source.toolkit.fluxcd.io/v1",
		"KsctlInstall": "apps.ksctl.com/v1", "KsctlRemove": "apps.ksctl.com/v1", "Booth": kindGroup + "/v1alpha1"}
	Expect(versions).To(HaveKey(kind))
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(versions[kind])
	u.SetKind(kind)
	u.SetNamespace(w.ns)
	u.SetName(name)
	return u
}

// sync creates a Kustomization of a folder of the repository, which waits for the applied
// objects, prunes, and has an interval of an hour. more is YAML that is added to its spec.
func (w fixture) sync(ctx context.Context, name, path, more string) *unstructured.Unstructured {
	GinkgoHelper()
	u := w.object("Kustomization", name)
	spec := map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}, "path": path,
		"targetNamespace": w.ns,
		"interval":        "1h", "retryInterval": "1s", "timeout": "1m", "wait": true, "prune": true,
		"serviceAccountName": harness.Deployer}
	Expect(yaml.Unmarshal([]byte(more), &spec)).To(Succeed())
	u.Object["spec"] = spec
	Expect(h.ControlPlane.Client().Create(ctx, u)).To(Succeed())
	k := w.object("Kustomization", name)
	// A failing Kustomization would be retried each second.
	DeferCleanup(func(ctx SpecContext) { patch(ctx, k, `{"spec":{"suspend":true}}`) })
	return k
}

func get(ctx context.Context, o client.Object) error {
	return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

func absent(ctx context.Context, o client.Object) bool {
	GinkgoHelper()
	err := get(ctx, o)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return apierrors.IsNotFound(err)
}

// patch changes an object like a user does.
func patch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)),
		client.FieldOwner("somebody"))).To(Succeed())
}

// requestReconcile requests a reconcile and returns the token of the request.
func requestReconcile(ctx context.Context, o client.Object) string {
	GinkgoHelper()
	at := fmt.Sprint(time.Now().UnixNano())
	patch(ctx, o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, at))
	return at
}

// lastHandledRequest returns the token of the last request that an object has handled.
func lastHandledRequest(ctx context.Context, u *unstructured.Unstructured) (string, error) {
	err := get(ctx, u)
	at, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
	return at, err
}

// readySummary returns the revision of an object, and status, reason and message of its Ready
// condition.
func readySummary(ctx context.Context, u *unstructured.Unstructured) (string, error) {
	if err := get(ctx, u); err != nil {
		return "", err
	}
	at, found, _ := unstructured.NestedString(u.Object, "status", "lastAppliedRevision")
	if !found {
		at, _, _ = unstructured.NestedString(u.Object, "status", "artifact", "revision")
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok || c["type"] != appsv1.ReadyCondition {
			continue
		}
		if c["observedGeneration"] != u.GetGeneration() {
			return fmt.Sprintf("Ready is of generation %v, not %d", c["observedGeneration"], u.GetGeneration()), nil
		}
		return fmt.Sprintf("%s %s %s: %s", at, c["status"], c["reason"], c["message"]), nil
	}
	return "no Ready condition", nil
}

// readyAt waits until an object is Ready at a revision.
func readyAt(ctx context.Context, u *unstructured.Unstructured, revision string) {
	GinkgoHelper()
	Eventually(ctx, readySummary, soon).WithArguments(ctx, u).Should(HavePrefix(revision+" True "), "%s %s is Ready",
		u.GetKind(), u.GetName())
}

// notReady waits until an object is not Ready with a reason and all texts in its message.
func notReady(ctx context.Context, u *unstructured.Unstructured, reason string, texts ...string) {
	GinkgoHelper()
	all := ContainSubstring(" False " + reason + ": ")
	for _, s := range texts {
		all = And(all, ContainSubstring(s))
	}
	Eventually(ctx, readySummary, soon).WithArguments(ctx, u).Should(all, "%s %s", u.GetKind(), u.GetName())
}

func configMapOf(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// value returns a value of a ConfigMap.
func value(ctx context.Context, ns, name, key string) string {
	GinkgoHelper()
	cm := configMapOf(ns, name)
	Expect(get(ctx, cm)).To(Succeed())
	return cm.Data[key]
}

const stack = `apiVersion: apps.ksctl.com/v1
kind: Stack
metadata: {name: app}
spec:
  version: 1.0.0
  components:
  - {name: base, manifests: [base/]}
  - {name: extra, manifests: [extra/], dependsOn: [base]}
`

const installManifest = `apiVersion: apps.ksctl.com/v1
kind: KsctlInstall
metadata: {name: app}
spec:
  interval: 1h
  retryInterval: 1s
  sourceRef: {kind: GitRepository, name: fleet}
  path: stacks
  stack: app
  serviceAccountName: ` + harness.Deployer + "\n"

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, value)
}

// deployment returns a Deployment whose pods have a fate.
func deployment(fate string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {e2e.ksctl.com/fate: %q}
    spec:
      containers: [{name: main, image: example.com/main:1}]
`, fate)
}

// content returns the stack app with two ConfigMaps, merged with files. Flux syncs
// clusters/prod, which has at least a ConfigMap.
func content(files map[string]string) map[string]string {
	all := map[string]string{"stacks/app/stack.yaml": stack, "stacks/app/base/base.yaml": configMap("base", "1"),
		"stacks/app/extra/extra.yaml": configMap("extra", "1"),
		"clusters/prod/none.yaml":     configMap("synced", "1")}
	for name, content := range files {
		all[name] = content
	}
	return all
}

// installNamed returns installManifest with another name.
func installNamed(name string) string {
	return strings.Replace(installManifest, "metadata: {name: app}", "metadata: {name: "+name+"}", 1)
}
