package argocd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness/argo"
)

// fixture is a namespace, a repository with stacks and with objects that are synced to the
// namespace, and the Application that syncs them.
type fixture struct {
	ns   string
	repo *gitserver.Repo
}

// newFixture creates a repository with files. The Application syncs those of the folder synced/.
func newFixture(ctx SpecContext, files map[string]string) fixture {
	GinkgoHelper()
	ns, err := h.Namespace(ctx, "argo")
	Expect(err).NotTo(HaveOccurred())
	repo, err := git.NewRepo(ctx, ns)
	Expect(err).NotTo(HaveOccurred())
	w := fixture{ns: ns, repo: repo}
	w.commit(ctx, files)
	return w
}

// commit adds files, in which REPO is replaced by the URL of the repository.
func (w fixture) commit(ctx SpecContext, files map[string]string, options ...gitserver.CommitOption) {
	GinkgoHelper()
	all := map[string]string{}
	for path, content := range files {
		all[path] = strings.ReplaceAll(content, "REPO", w.repo.URL())
	}
	_, err := w.repo.Commit(ctx, all, "change", options...)
	Expect(err).NotTo(HaveOccurred())
}

// sync creates the Application, which has the name of the namespace.
func (w fixture) sync(ctx SpecContext, annotations string, options ...string) {
	GinkgoHelper()
	Expect(h.ControlPlane.ApplyYAML(ctx, fmt.Appendf(nil, `
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %[1]s
  namespace: %[6]s
  annotations: {%[2]s}
  finalizers: [%[3]s]
spec:
  project: default
  source: {repoURL: %[4]q, targetRevision: main, path: synced}
  destination: {server: "https://kubernetes.default.svc", namespace: %[1]s}
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [%[5]s]
`, w.ns, annotations, argo.Finalizer, w.repo.URL(), strings.Join(options, ", "), argoNamespace))).To(Succeed())
	DeferCleanup(w.cleanUp)
}

// cleanUp removes the Application and suspends our objects, so that they cause no load during
// the next spec.
func (w fixture) cleanUp(ctx SpecContext) {
	c := h.ControlPlane.Client()
	for _, body := range []string{`{"metadata":{"finalizers":null}}`, `{"spec":{"syncPolicy":{"automated":null}}}`} {
		Expect(client.IgnoreNotFound(c.Patch(ctx, application(w.ns),
			client.RawPatch(types.MergePatchType, []byte(body))))).To(Succeed())
	}
	Expect(client.IgnoreNotFound(c.Delete(ctx, application(w.ns)))).To(Succeed())
	suspend := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))
	var sources appsv1.KsctlSourceList
	var installs appsv1.KsctlInstallList
	Expect(c.List(ctx, &sources, client.InNamespace(w.ns))).To(Succeed())
	Expect(c.List(ctx, &installs, client.InNamespace(w.ns))).To(Succeed())
	for i := range sources.Items {
		Expect(client.IgnoreNotFound(c.Patch(ctx, &sources.Items[i], suspend))).To(Succeed())
	}
	for i := range installs.Items {
		Expect(client.IgnoreNotFound(c.Patch(ctx, &installs.Items[i], suspend))).To(Succeed())
	}
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

// application returns an Application of a name, without content.
func application(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("argoproj.io/v1alpha1")
	u.SetKind("Application")
	u.SetNamespace(argoNamespace)
	u.SetName(name)
	return u
}

// refresh requests a comparison of an Application.
func refresh(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, application(name), argo.RefreshPatch)).To(Succeed())
}

// resource is the status of one object in the status of an Application.
type resource struct {
	Kind, Name, Status string
	Health             struct{ Status, Message string }
}

type status struct {
	Sync       struct{ Status, Revision string }
	Health     struct{ Status string }
	Resources  []resource
	Conditions []struct{ Type, Message string }
}

func statusOf(ctx context.Context, name string) (status, error) {
	var out struct{ Status status }
	u := application(name)
	if err := get(ctx, u); err != nil {
		return out.Status, err
	}
	data, err := u.MarshalJSON()
	if err != nil {
		return out.Status, err
	}
	err = json.Unmarshal(data, &out)
	return out.Status, err
}

// of returns the sync status, the health and the message of the object of a kind.
func (s status) of(kind string) string {
	for _, r := range s.Resources {
		if r.Kind == kind {
			return r.Status + " " + r.Health.Status + ": " + r.Health.Message
		}
	}
	return "no such object"
}

// becomes waits until an Application is synced and has a health.
func becomes(ctx context.Context, name, health string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		s, err := statusOf(ctx, name)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s %s %v %v", s.Sync.Status, s.Health.Status, s.Conditions, s.Resources)
	}, soon).Should(HavePrefix("Synced "+health+" "), "the Application %s", name)
}

// reports waits until the status of the object of a kind matches a regular expression.
func reports(ctx context.Context, name, kind, expression string) {
	GinkgoHelper()
	Eventually(ctx, func() string {
		s, err := statusOf(ctx, name)
		if err != nil {
			return err.Error()
		}
		return s.of(kind)
	}, soon).Should(MatchRegexp(expression), "the Application %s", name)
}

// treeKinds returns the kinds in the resource tree of an Application: those that it syncs, and
// those of their children.
func treeKinds(name string) []string {
	GinkgoHelper()
	var kinds []string
	for _, key := range argoCD.Redis.Keys() {
		if !strings.HasPrefix(key, "app|resources-tree|"+name+"|") {
			continue
		}
		value, err := argoCD.Redis.Get(key)
		Expect(err).NotTo(HaveOccurred())
		var tree struct{ Nodes []struct{ Kind string } }
		Expect(json.Unmarshal([]byte(value), &tree)).To(Succeed())
		for _, n := range tree.Nodes {
			kinds = append(kinds, n.Kind)
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

func install(ns, name string) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{}
	in.Namespace, in.Name = ns, name
	return in
}
