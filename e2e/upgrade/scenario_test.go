package upgrade_test

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/harness"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: one}\n"

// appStack has a component for each kind of mark: on objects of a created namespace, with a
// readiness expression, on a generated Secret, and one that a KsctlRemove removes.
const appStack = `spec:
  version: 1.2.0
  components:
  - name: base
    namespace: ` + createdNS + `
    createNamespace: true
    manifests: [base/]
    readyExpr: has(self.metadata)
  - {name: web, helm: {chart: ./chart, releaseName: web}, dependsOn: [base]}
  - {name: extra, manifests: [extra/], dependsOn: [web]}
`

var appFiles = map[string]string{
	"base/settings.yaml": fmt.Sprintf(configMap, "settings"),
	"base/account.yaml":  "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web}\n",
	"chart/Chart.yaml":   "apiVersion: v2\nname: web\nversion: 1.0.0\n",
	"chart/templates/pw.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: {{ .Release.Name " +
		"}}-password}\nstringData: {value: {{ randAlphaNum 20 }}}\n",
	"extra/extra.yaml": fmt.Sprintf(configMap, "extra"),
}

// state is a document as ksctl exports it.
const state = `{"cluster_name":"demo","cluster_type":"ha","region":"LON1","cloud_provider":"civo",` +
	`"bootstrap_provider":"k3s","cluster_kubeconfig":%q}`

// kubeconfig of a cluster that refuses connections.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: demo, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: admin, user: {token: secret-token}}]
contexts: [{name: demo, context: {cluster: demo, user: admin}}]
current-context: demo
`

// revisions are what the sources offer, oldest first.
var revisions = []struct {
	source, revision string
	tree             fs.FS
}{
	{"app", "r1", harness.SourceTree(appStack, appFiles)},
	{"held", "r1", configMaps("a", "b", "c")},
	{"found", "r1", configMaps("found")},
	{"states", "r1", artifacts.Files(map[string]string{"clusters/demo.json": fmt.Sprintf(state, kubeconfig)})},
	// Removes more than the guard of the install allows.
	{"held", "r2", configMaps("a")},
}

// configMaps is the source of a stack of ConfigMaps.
func configMaps(names ...string) fs.FS {
	files := map[string]string{}
	for _, name := range names {
		files["main/"+name+".yaml"] = fmt.Sprintf(configMap, name)
	}
	return harness.SourceTree(harness.OneComponent, files)
}

var (
	meta = func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

	repo       = &appsv1.KsctlSource{ObjectMeta: meta("repo")}
	app        = &appsv1.KsctlInstall{ObjectMeta: meta("app")}
	unapproved = &appsv1.KsctlInstall{ObjectMeta: meta("held")}
	extra      = &appsv1.KsctlRemove{ObjectMeta: meta("extra")}
	found      = &appsv1.KsctlRemove{ObjectMeta: meta("found")}
	imported   = &v1alpha1.ImportState{ObjectMeta: meta("import")}
	exported   = &v1alpha1.ExportState{ObjectMeta: meta("export")}
	demo       = &clusterv1.KsctlCluster{ObjectMeta: meta("demo")} // the controller creates it
)

// serve offers every revision, and the repository, at this run's addresses.
func serve(ctx context.Context) {
	GinkgoHelper()
	for _, r := range revisions {
		_, err := h.ArtifactServer.Publish("ksctlsource/"+ns+"/"+r.source, r.tree, r.revision)
		Expect(err).NotTo(HaveOccurred())
	}
	fleet, err := git.NewRepo(ctx, "fleet")
	Expect(err).NotTo(HaveOccurred())
	_, err = fleet.Commit(ctx, map[string]string{"README.md": "fleet\n"}, "one",
		gitserver.At(time.Unix(1_800_000_000, 0)))
	Expect(err).NotTo(HaveOccurred())
}

// record creates the objects of the scenario, waits until the controller is done with them, and
// stores what the API server has then.
func record(ctx context.Context) {
	GinkgoHelper()
	serve(ctx)
	Expect(h.ControlPlane.Client().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).
		To(Succeed())
	Expect(harness.CreateDeployer(ctx, h.ControlPlane, ns)).To(Succeed())
	controller := start()
	last := len(revisions) - 1
	for _, r := range revisions[:last] {
		Expect(h.PublishSource(ctx, ns, r.source, r.revision, r.tree)).To(Succeed())
	}
	for _, o := range scenario() {
		Expect(h.ControlPlane.Client().Create(ctx, o)).To(Succeed())
	}
	becomes(ctx, app, metav1.ConditionTrue, "ReconciliationSucceeded")
	becomes(ctx, unapproved, metav1.ConditionTrue, "ReconciliationSucceeded")

	Expect(h.PublishSource(ctx, ns, "held", "r2", revisions[last].tree)).To(Succeed())
	extra.Spec = appsv1.KsctlRemoveSpec{Schedule: hourly(), InstallRef: &appsv1.InstallRef{Name: app.Name},
		Components: []string{"extra"}}
	Expect(h.ControlPlane.Client().Create(ctx, extra)).To(Succeed())
	becomes(ctx, repo, metav1.ConditionTrue, "Succeeded")
	becomes(ctx, unapproved, metav1.ConditionFalse, "DeletionsHeld")
	becomes(ctx, extra, metav1.ConditionTrue, "ReconciliationSucceeded")
	becomes(ctx, found, metav1.ConditionFalse, "AwaitingApproval")
	becomes(ctx, imported, metav1.ConditionTrue, "ReconciliationSucceeded")
	becomes(ctx, exported, metav1.ConditionTrue, "ReconciliationSucceeded")
	becomes(ctx, demo, metav1.ConditionFalse, "Unreachable")
	// Answers to requests show that nothing is left to do.
	request(ctx, "recorded")
	Expect(controller.Stop()).To(Succeed())
	write(ctx)
}

func hourly() appsv1.Schedule {
	hour := &metav1.Duration{Duration: time.Hour}
	return appsv1.Schedule{Interval: hour, RetryInterval: hour}
}

// scenario returns the objects that a user creates.
func scenario() []client.Object {
	store := v1alpha1.StateStore{Namespace: ns}
	source := func(name string) appsv1.SourceRef { return appsv1.SourceRef{Kind: "KsctlSource", Name: name} }
	repo.Spec = appsv1.KsctlSourceSpec{Schedule: hourly(), Git: &appsv1.GitSource{URL: git.URL() + "/fleet.git"}}
	app.Spec = appsv1.KsctlInstallSpec{Schedule: hourly(), SourceRef: source("app"), Path: "stacks", Stack: "app",
		ServiceAccountName: harness.Deployer}
	unapproved.Spec = *app.Spec.DeepCopy()
	unapproved.Spec.SourceRef = source("held")
	unapproved.Spec.Guard = &appsv1.Guard{MaxDeletes: new(int32)}
	of := source("found")
	found.Spec = appsv1.KsctlRemoveSpec{Schedule: hourly(), SourceRef: &of, Path: "stacks", Stack: "app",
		ServiceAccountName: harness.Deployer}
	states := source("states")
	imported.Spec = v1alpha1.ImportStateSpec{Schedule: hourly(), SourceRef: &states, Path: "clusters",
		AllowPlaintext: true,
		Store:          &v1alpha1.ImportStore{StateStore: store}, ServiceAccountName: harness.Deployer,
		Publish: &v1alpha1.ClusterPublication{KubeConfig: true}}
	exported.Spec = v1alpha1.ExportStateSpec{Schedule: hourly(), From: &store, ServiceAccountName: harness.Deployer,
		Recipients: []string{"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"},
		To:         v1alpha1.ExportTarget{Secret: &v1alpha1.ExportSecret{Name: "backup"}}}
	alone := &corev1.ConfigMap{ObjectMeta: meta("found"), Data: map[string]string{"value": "one"}} // kubectl created it
	return []client.Object{alone, repo, app, unapproved, found, imported, exported}
}

// becomes waits until the Ready condition of an object has a status and a reason.
func becomes(ctx context.Context, o kind, status metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	Eventually(ctx, func() (metav1.Condition, error) {
		err := get(ctx, o)
		ready := apimeta.FindStatusCondition(o.CommonStatus().Conditions, appsv1.ReadyCondition)
		if ready == nil {
			ready = &metav1.Condition{}
		}
		return *ready, err
	}, soon).Should(And(HaveField("Status", status), HaveField("Reason", reason)), "%T %s", o, o.GetName())
}
