package charts_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/charts/stored"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// release is the name of each release.
const release = "my"

// chartFiles returns the files of a chart in testdata, with the name of a namespace in place of
// NAMESPACE, and in crds/ the version of the chart in place of VERSION. There is no default of
// values.yaml.
func chartFiles(name, version, namespace string) map[string]string {
	GinkgoHelper()
	files := map[string]string{"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n"}
	root := filepath.Join("testdata", name)
	Expect(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := strings.CutPrefix(filepath.ToSlash(path), filepath.ToSlash(root)+"/")
		files[rel] = strings.ReplaceAll(string(data), stored.Namespace, namespace)
		if strings.HasPrefix(rel, "crds/") {
			files[rel] = strings.ReplaceAll(files[rel], "VERSION", version)
		}
		return err
	})).To(Succeed())
	files["Chart.yaml"] = strings.Replace(files["Chart.yaml"], "version: 1.0.0", "version: "+version, 1)
	return files
}

// desired is what an installer installs: a version of a chart, with its own values or with those of
// its changed.yaml.
type desired struct {
	chart, version string
	changed        bool
}

// in returns the files of the chart for a namespace, and the content of a values file.
func (d desired) in(namespace string) (files map[string]string, values string) {
	GinkgoHelper()
	files = chartFiles(d.chart, d.version, namespace)
	if d.changed {
		values = files["changed.yaml"]
	}
	return files, values
}

// helmRelease is a release of Helm.
type helmRelease struct{ namespace string }

// apply installs or upgrades the release. Fields that somebody changed by hand are Helm's again.
func (r helmRelease) apply(ctx context.Context, d desired) error {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	files, values := d.in(r.namespace)
	files["given.yaml"] = values
	for name, content := range files {
		path := filepath.Join(dir, name)
		Expect(os.MkdirAll(filepath.Dir(path), 0o750)).To(Succeed())
		Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
	_, err := h.Helm(ctx, r.namespace, "upgrade", "--install", "--force-conflicts", release, dir, "--values",
		filepath.Join(dir, "given.yaml"))
	return err
}

func (r helmRelease) notes(ctx context.Context) string {
	GinkgoHelper()
	text, err := h.Helm(ctx, r.namespace, "get", "notes", release)
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(text), "NOTES:"))
}

func (r helmRelease) remove(ctx context.Context) {
	GinkgoHelper()
	_, err := h.Helm(ctx, r.namespace, "uninstall", release, "--ignore-not-found")
	Expect(err).NotTo(HaveOccurred())
}

// install is a KsctlInstall of the same chart, with the same release name.
type install struct {
	*appsv1.KsctlInstall
	revisions int
}

func newInstall(namespace string) *install {
	return &install{KsctlInstall: harness.NewInstall(namespace, "i")}
}

func (i *install) revision() string { return fmt.Sprintf("main@sha1:%d", i.revisions) }

// apply publishes the next revision of the source, and creates the install if there is none.
func (i *install) apply(ctx context.Context, d desired) {
	GinkgoHelper()
	files, values := d.in(i.Namespace)
	all := map[string]string{"values.yaml": values}
	for name, content := range files {
		all["chart/"+name] = content
	}
	i.revisions++
	Expect(h.PublishSource(ctx, i.Namespace, "src", i.revision(), harness.SourceTree("spec:\n  version: 1.0.0\n"+
		"  components:\n  - {name: my, helm: {chart: ./chart, releaseName: "+release+
		", valuesFiles: [values.yaml]}}\n", all))).To(Succeed())
	if i.revisions == 1 {
		Expect(h.ControlPlane.Client().Create(ctx, i.KsctlInstall)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			suspend := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"suspend":true}}`))
			Expect(client.IgnoreNotFound(h.ControlPlane.Client().Patch(ctx, i.KsctlInstall, suspend))).To(Succeed())
		})
	}
}

func (i *install) read(ctx context.Context) error {
	return h.ControlPlane.Client().Get(ctx, client.ObjectKeyFromObject(i.KsctlInstall), i.KsctlInstall)
}

// await waits until the revision is applied, and ready if it becomes that.
func (i *install) await(ctx context.Context, becomesReady bool) {
	GinkgoHelper()
	eventually(ctx, func() error {
		if err := i.read(ctx); err != nil {
			return err
		}
		c := harness.ReadyCondition(i.KsctlInstall)
		if i.Status.LastAttemptedRevision != i.revision() ||
			becomesReady && (c.Status != "True" || i.Status.LastAppliedRevision != i.revision()) {
			return fmt.Errorf("at %s, applied %s: Ready is %s/%s: %s", i.Status.LastAttemptedRevision,
				i.Status.LastAppliedRevision, c.Status, c.Reason, c.Message)
		}
		return nil
	}, "the install is at "+i.revision())
}

func (i *install) notes() string {
	for _, c := range i.Status.Components {
		return c.Notes
	}
	return ""
}

// reconcile requests a reconcile, and waits until it is done.
func (i *install) reconcile(ctx context.Context, token string) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Patch(ctx, i.KsctlInstall, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, appsv1.RequestedAtAnnotation, token)))).To(Succeed())
	eventually(ctx, func() error {
		err := i.read(ctx)
		if err == nil && i.Status.LastHandledReconcileAt != token {
			err = fmt.Errorf("the last request is %q", i.Status.LastHandledReconcileAt)
		}
		return err
	}, "the request is handled")
}

// requests returns the requests for the install since a mark, except for watches.
func (i *install) requests(ctx context.Context, mark cluster.Mark) cluster.Requests {
	GinkgoHelper()
	all, err := h.ControlPlane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	user := cluster.ServiceAccountUser(i.Namespace, harness.Deployer)
	return all.Where(cluster.ByEffectiveUser(user)).Without(cluster.Watch)
}

// remove deletes the install, and waits until it is gone.
func (i *install) remove(ctx context.Context) {
	GinkgoHelper()
	Expect(h.ControlPlane.Client().Delete(ctx, i.KsctlInstall)).To(Succeed())
	eventually(ctx, func() error {
		err := i.read(ctx)
		if err == nil {
			return fmt.Errorf("it is there: %s", harness.ReadyCondition(i.KsctlInstall).Message)
		}
		return client.IgnoreNotFound(err)
	}, "the install is removed")
}
