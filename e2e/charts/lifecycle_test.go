package charts_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/charts/stored"
	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

// page has the table of differences from Helm.
const page = "docs/helm.md"

// lifeCase is a chart in testdata, and what happens to its objects.
type lifeCase struct {
	chart string
	// changed is an object that is changed by hand, with a merge patch; deleted is one that is
	// deleted by hand.
	changed, patch, deleted string
	// generated are fields with random values. They must keep their values.
	generated []stored.Difference
	// refusal is a part of Helm's error, if Helm does not install the chart.
	refusal string
	// unready is true if a workload becomes ready only with changed values.
	unready bool
}

var lifeCases = []lifeCase{
	{chart: "workloads", changed: "Deployment/web", patch: `{"spec":{"replicas":3}}`, deleted: "Service/web"},
	{chart: "generated", changed: "Secret/login", patch: `{"data":{"user":"bWU="}}`, deleted: "ConfigMap/spare",
		generated: []stored.Difference{{Object: "Secret/login", Field: "data.password"}}},
	{chart: "crds", changed: "Widget/one", patch: `{"spec":{"size":9}}`, deleted: "Widget/two"},
	{chart: "crds-in-templates", changed: "Widget/one", patch: `{"spec":{"size":9}}`, deleted: "Widget/two",
		refusal: "ensure CRDs are installed first"},
	{chart: "keep", changed: "ConfigMap/kept", patch: `{"data":{"greeting":"by hand"}}`, deleted: "ConfigMap/spare"},
	{chart: "claims", changed: "PersistentVolumeClaim/data", patch: `{"metadata":{"labels":{"version":"by-hand"}}}`,
		deleted: "ConfigMap/spare"},
	{chart: "webhook", changed: "ValidatingWebhookConfiguration/NAMESPACE-check",
		patch: `{"metadata":{"annotations":{"greeting":"by hand"}}}`, deleted: "Service/check"},
	{chart: "aggregated", changed: "ClusterRole/NAMESPACE-all", patch: `{"metadata":{"labels":{"greeting":"by-hand"}}}`,
		deleted: "ConfigMap/spare"},
	{chart: "namespace", changed: "Namespace/NAMESPACE-more", patch: `{"metadata":{"labels":{"version":"by-hand"}}}`,
		deleted: "ConfigMap/NAMESPACE-more/there"},
	{chart: "subchart", changed: "ConfigMap/settings", patch: `{"data":{"greeting":"by hand"}}`,
		deleted: "ConfigMap/search"},
	{chart: "hooks", changed: "ConfigMap/settings", patch: `{"data":{"greeting":"by hand"}}`, deleted: "ConfigMap/spare"},
	{chart: "revision", changed: "ConfigMap/settings", patch: `{"data":{"greeting":"by hand"}}`,
		deleted: "ConfigMap/spare"},
	{chart: "notes", changed: "ConfigMap/settings", patch: `{"data":{"greeting":"by hand"}}`, deleted: "ConfigMap/spare"},
	{chart: "waits", changed: "ConfigMap/settings", patch: `{"data":{"greeting":"by hand"}}`, deleted: "ConfigMap/spare",
		unready: true},
}

// life is the life of one chart, installed by Helm and by us.
type life struct {
	lifeCase
	helm helmRelease
	ours *install
	// rows are those of the chart in the table of the docs. shown are the rows that were observed.
	rows  []stored.Row
	shown map[stored.Row]bool
	// first are the objects after the install, by namespace.
	first map[string]stored.Objects
}

// objects returns the stored objects of a namespace.
func objects(ctx context.Context, namespace string) stored.Objects {
	GinkgoHelper()
	all, err := h.ControlPlane.EtcdObjects(ctx)
	Expect(err).NotTo(HaveOccurred())
	out, err := stored.Of(all, namespace)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// content returns the content of the objects in a namespace. A generated value is replaced by
// whether it is the one of the install.
func (l *life) content(ctx context.Context, namespace string) stored.Objects {
	GinkgoHelper()
	all := objects(ctx, namespace)
	if l.first[namespace] == nil {
		l.first[namespace] = all
	}
	out := stored.Objects{}
	for name, object := range all {
		out[name] = stored.Content(object, namespace)
	}
	for _, g := range l.generated {
		value := "another value"
		if stored.Field(out[g.Object], g.Field) == stored.Field(l.first[namespace][g.Object], g.Field) {
			value = "as installed"
		}
		stored.SetField(out[g.Object], g.Field, value)
	}
	return out
}

// compare waits until the objects of both differ only in rows of the table, and records those rows.
func (l *life) compare(ctx context.Context) {
	GinkgoHelper()
	eventually(ctx, func() error {
		found := stored.Differences(l.content(ctx, l.helm.namespace), l.content(ctx, l.ours.Namespace))
		var rows []stored.Row
		var without []string
		for _, d := range found {
			at := slices.IndexFunc(l.rows, func(row stored.Row) bool { return row.Difference == d })
			if at < 0 {
				without = append(without, fmt.Sprintf("%s %q", d.Object, d.Field))
				continue
			}
			rows = append(rows, l.rows[at])
		}
		if len(without) > 0 {
			return fmt.Errorf("%s has no rows for these differences from Helm: %s", page, strings.Join(without, ", "))
		}
		for _, row := range rows {
			l.shown[row] = true
		}
		return nil
	}, "the objects are those of Helm")
}

// apply applies something with Helm and with us, and compares the results.
func (l *life) apply(ctx context.Context, d desired) {
	GinkgoHelper()
	mark := auditMark(ctx)
	l.ours.apply(ctx, d)
	err := l.helm.apply(ctx, d)
	if l.refusal != "" {
		Expect(err).To(MatchError(ContainSubstring(l.refusal)))
	} else {
		Expect(err).NotTo(HaveOccurred())
	}
	l.ours.await(ctx, !l.unready || d.changed)
	l.compare(ctx)
	if l.refusal == "" {
		Expect(l.ours.notes()).To(Equal(l.helm.notes(ctx)), "the notes are those of Helm")
	}
	Expect(jobsMade(ctx, mark, l.ours.Namespace)).To(HaveLen(len(jobsMade(ctx, mark, l.helm.namespace))),
		"as many Jobs are made as by Helm")
}

// jobsMade returns the requests since a mark that made Jobs in a namespace.
func jobsMade(ctx context.Context, mark cluster.Mark, namespace string) cluster.Requests {
	GinkgoHelper()
	all, err := h.ControlPlane.AuditSince(ctx, mark)
	Expect(err).NotTo(HaveOccurred())
	return all.Where(cluster.Resource("jobs"), cluster.InNamespace(namespace),
		func(r cluster.Request) bool { return r.Code == http.StatusCreated }).Without(cluster.DryRun)
}

// stayQuiet checks that the install sends no request, and that a reconcile writes nothing.
func (l *life) stayQuiet(ctx context.Context) {
	GinkgoHelper()
	mark := auditMark(ctx)
	Eventually(ctx, func() cluster.Requests {
		next := auditMark(ctx)
		found := l.ours.requests(ctx, mark)
		mark = next
		return found
	}, soon, quiet).MustPassRepeatedly(3).Should(BeEmpty(), "an install that has nothing to do sends no request")
	l.ours.reconcile(ctx, "again")
	Expect(l.ours.requests(ctx, mark).Where(cluster.Write)).To(BeEmpty(), "a reconcile has nothing to correct")
	l.ours.await(ctx, !l.unready)
}

// changeByHand changes an object and deletes one, of Helm's and of ours. Ours are put right.
func (l *life) changeByHand(ctx context.Context) {
	GinkgoHelper()
	before := l.content(ctx, l.ours.Namespace)
	for _, namespace := range []string{l.helm.namespace, l.ours.Namespace} {
		all := objects(ctx, namespace)
		if all[l.changed] == nil {
			continue // Helm refuses the chart
		}
		changed, deleted := object(all[l.changed]), object(all[l.deleted])
		Expect(h.ControlPlane.Client().Patch(ctx, changed, client.RawPatch("application/merge-patch+json",
			[]byte(l.patch)), client.FieldOwner("somebody"))).To(Succeed())
		Expect(h.ControlPlane.Client().Delete(ctx, deleted)).To(Succeed())
	}
	eventually(ctx, func() error {
		if found := stored.Differences(before, l.content(ctx, l.ours.Namespace)); len(found) > 0 {
			return fmt.Errorf("still differs: %v", found)
		}
		return nil
	}, "our objects are as before")
	l.ours.await(ctx, !l.unready)
	l.compare(ctx)
}

// object returns an object for requests about it.
func object(content map[string]any) *unstructured.Unstructured {
	full := &unstructured.Unstructured{Object: content}
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(full.GroupVersionKind())
	out.SetNamespace(full.GetNamespace())
	out.SetName(full.GetName())
	return out
}

// remove removes both, and compares what is left.
func (l *life) remove(ctx context.Context) {
	GinkgoHelper()
	l.ours.remove(ctx)
	l.helm.remove(ctx)
	l.compare(ctx)
}

// move installs the chart with Helm, and takes the release over. Every object stays the same one,
// with the same content.
func (l *life) move(ctx context.Context) {
	GinkgoHelper()
	if l.refusal != "" {
		return
	}
	d := desired{chart: l.chart, version: "2.0.0", changed: true}
	moved := newInstall(namespace(ctx))
	moved.Spec.Adopt = appsv1.AdoptAlways
	Expect(helmRelease{moved.Namespace}.apply(ctx, d)).To(Succeed())
	// The control plane still completes some objects.
	before := l.content(ctx, moved.Namespace)
	Eventually(ctx, func() []stored.Difference {
		last := before
		before = l.content(ctx, moved.Namespace)
		return stored.Differences(last, before)
	}, soon, quiet).MustPassRepeatedly(2).Should(BeEmpty(), "the release stops changing")
	uids := uidsOf(objects(ctx, moved.Namespace))
	moved.apply(ctx, d)
	moved.await(ctx, true)
	eventually(ctx, func() error {
		if found := stored.Differences(before, l.content(ctx, moved.Namespace)); len(found) > 0 {
			return fmt.Errorf("the move changes %v", found)
		}
		return nil
	}, "the content stays")
	Expect(uidsOf(objects(ctx, moved.Namespace))).To(Equal(uids), "no object is made again")
}

func uidsOf(all stored.Objects) map[string]any {
	out := map[string]any{}
	for name, object := range all {
		out[name] = stored.Field(object, "metadata.uid")
	}
	return out
}

// tableRows returns the rows of the table of the docs.
func tableRows() []stored.Row {
	GinkgoHelper()
	text, err := os.ReadFile(harness.RepoPath(page))
	Expect(err).NotTo(HaveOccurred())
	rows, err := stored.ParseTable(string(text))
	Expect(err).NotTo(HaveOccurred())
	return rows
}

// live runs the life of a chart.
func live(ctx context.Context, c lifeCase) {
	GinkgoHelper()
	l := &life{lifeCase: c, helm: helmRelease{namespace(ctx)}, ours: newInstall(namespace(ctx)),
		rows:  slices.DeleteFunc(tableRows(), func(row stored.Row) bool { return row.Case != c.chart }),
		shown: map[stored.Row]bool{}, first: map[string]stored.Objects{}}
	By("installing")
	l.apply(ctx, desired{chart: c.chart, version: "1.0.0"})
	By("staying quiet")
	l.stayQuiet(ctx)
	By("changing objects by hand")
	l.changeByHand(ctx)
	By("applying a new version")
	l.apply(ctx, desired{chart: c.chart, version: "2.0.0"})
	By("changing values")
	l.apply(ctx, desired{chart: c.chart, version: "2.0.0", changed: true})
	By("removing")
	l.remove(ctx)
	By("moving a release of Helm")
	l.move(ctx)
	for _, row := range l.rows {
		Expect(l.shown).To(HaveKey(row), "%s has a row that does not happen", page)
	}
}

var _ = Describe("A chart lives as with Helm, except for what the table in docs/helm.md has:", func() {
	for _, c := range lifeCases {
		It(c.chart, func(ctx SpecContext) { live(ctx, c) })
	}

	It("the rows of the table are about these charts", func() {
		for _, row := range tableRows() {
			Expect(slices.ContainsFunc(lifeCases, func(c lifeCase) bool { return c.chart == row.Case })).
				To(BeTrue(), "%v", row)
		}
	})
})
