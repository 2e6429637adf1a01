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

// world is a namespace, and a repository of stacks and of what is synced to the namespace.
type world struct {
	ns   string
	repo *gitserver.Repo
}

// newWorld has a namespace whose account "deployer" may do everything, and a GitRepository
// "fleet" there, which is looked at each hour and when somebody asks.
func newWorld(ctx SpecContext, files map[string]string) world {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, "flux")
	Expect(err).NotTo(HaveOccurred())
	return newWorldIn(ctx, ns, files)
}

func newWorldIn(ctx SpecContext, ns string, files map[string]string) world {
	GinkgoHelper()
	repo, err := git.NewRepo(ctx, ns)
	Expect(err).NotTo(HaveOccurred())
	w := world{ns: ns, repo: repo}
	_, err = repo.CommitDir(ctx, artifacts.Files(files), "first")
	Expect(err).NotTo(HaveOccurred())
	Expect(h.Plane.Client().Create(ctx, &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "fleet"},
		Spec: sourcev1.GitRepositorySpec{URL: repo.URL(), Reference: &sourcev1.GitRepositoryRef{Branch: gitserver.DefaultBranch},
			Interval: metav1.Duration{Duration: time.Hour}}})).To(Succeed())
	return w
}

// commit makes files all that the repository has, and has the source look at it, as a
// Receiver of notification-controller does after a push. It gives the revision.
func (w world) commit(ctx context.Context, files map[string]string) string {
	GinkgoHelper()
	id, err := w.repo.CommitDir(ctx, artifacts.Files(files), "change")
	Expect(err).NotTo(HaveOccurred())
	ask(ctx, w.object("GitRepository", "fleet"))
	return "main@sha1:" + id
}

// head is the revision that was committed last.
func (w world) head(ctx context.Context) string {
	GinkgoHelper()
	id, err := w.repo.Head(ctx, gitserver.DefaultBranch)
	Expect(err).NotTo(HaveOccurred())
	return "main@sha1:" + id
}

// object of a namespace, by its kind and name.
func (w world) object(kind, name string) *unstructured.Unstructured {
	GinkgoHelper()
	versions := map[string]string{"Kustomization": "kustomize.toolkit.fluxcd.io/v1", "GitRepository": "source.toolkit.fluxcd.io/v1",
		"OCIRepository": "source.toolkit.fluxcd.io/v1", "ExternalArtifact": "source.toolkit.fluxcd.io/v1", "KsctlInstall": "apps.ksctl.com/v1", "KsctlRemove": "apps.ksctl.com/v1"}
	Expect(versions).To(HaveKey(kind))
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(versions[kind])
	u.SetKind(kind)
	u.SetNamespace(w.ns)
	u.SetName(name)
	return u
}

// sync makes a Kustomization of a folder of the repository, which waits for what it
// applied, prunes, and is reconciled each hour or when something happens. More is YAML that
// is added to its spec.
func (w world) sync(ctx context.Context, name, path, more string) *unstructured.Unstructured {
	GinkgoHelper()
	u := w.object("Kustomization", name)
	spec := map[string]any{"sourceRef": map[string]any{"kind": "GitRepository", "name": "fleet"}, "path": path, "targetNamespace": w.ns,
		"interval": "1h", "retryInterval": "1s", "timeout": "1m", "wait": true, "prune": true, "serviceAccountName": harness.Deployer}
	Expect(yaml.Unmarshal([]byte(more), &spec)).To(Succeed())
	u.Object["spec"] = spec
	Expect(h.Plane.Client().Create(ctx, u)).To(Succeed())
	k := w.object("Kustomization", name)
	// One that is refused is tried again each second.
	DeferCleanup(func(ctx SpecContext) { patch(ctx, k, `{"spec":{"suspend":true}}`) })
	return k
}

func get(ctx context.Context, o client.Object) error {
	return h.Plane.Client().Get(ctx, client.ObjectKeyFromObject(o), o)
}

func gone(ctx context.Context, o client.Object) bool {
	GinkgoHelper()
	err := get(ctx, o)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	return apierrors.IsNotFound(err)
}

// patch changes an object as somebody at the cluster would.
func patch(ctx context.Context, o client.Object, body string) {
	GinkgoHelper()
	Expect(h.Plane.Client().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(body)), client.FieldOwner("somebody"))).To(Succeed())
}

// ask asks for a reconcile, and gives what the answer is.
func ask(ctx context.Context, o client.Object) string {
	GinkgoHelper()
	at := fmt.Sprint(time.Now().UnixNano())
	patch(ctx, o, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, at))
	return at
}

// answered is which request an object has answered last.
func answered(ctx context.Context, u *unstructured.Unstructured) (string, error) {
	err := get(ctx, u)
	at, _, _ := unstructured.NestedString(u.Object, "status", "lastHandledReconcileAt")
	return at, err
}

// told is the condition Ready of an object: its status, reason and message, after the
// revision that the object has.
func told(ctx context.Context, u *unstructured.Unstructured) (string, error) {
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
	return "no Ready", nil
}

// readyAt waits until an object is Ready at a revision.
func readyAt(ctx context.Context, u *unstructured.Unstructured, revision string) {
	GinkgoHelper()
	Eventually(ctx, told, soon).WithArguments(ctx, u).Should(HavePrefix(revision+" True "), "%s %s is Ready", u.GetKind(), u.GetName())
}

// refuses waits until an object is not Ready, for a reason and with all that is to be said.
func refuses(ctx context.Context, u *unstructured.Unstructured, reason string, said ...string) {
	GinkgoHelper()
	all := ContainSubstring(" False " + reason + ": ")
	for _, s := range said {
		all = And(all, ContainSubstring(s))
	}
	Eventually(ctx, told, soon).WithArguments(ctx, u).Should(all, "%s %s", u.GetKind(), u.GetName())
}

func configMapOf(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

// value of a ConfigMap.
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

const kinInstall = `apiVersion: apps.ksctl.com/v1
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

// deployment has pods with a fate.
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

// content has the stack app of two ConfigMaps, and files instead of or beside that. What
// stands in clusters/prod is synced, a ConfigMap at least.
func content(files map[string]string) map[string]string {
	all := map[string]string{"stacks/app/stack.yaml": stack, "stacks/app/base/base.yaml": configMap("base", "1"), "stacks/app/extra/extra.yaml": configMap("extra", "1"),
		"clusters/prod/none.yaml": configMap("synced", "1")}
	for name, content := range files {
		all[name] = content
	}
	return all
}

// named is an install of another name.
func named(name string) string {
	return strings.Replace(kinInstall, "metadata: {name: app}", "metadata: {name: "+name+"}", 1)
}
