package install_test

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// series returns the values of the controller's metrics for the installs of a namespace, by
// name{label=value,...} without the labels namespace and name.
func series(ns string) map[string]float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			about, other := false, false
			for _, l := range m.GetLabel() {
				switch {
				case strings.HasSuffix(l.GetName(), "namespace") && l.GetValue() == ns:
					about = true
				case l.GetName() == "kind" && l.GetValue() != "KsctlInstall":
					other = true
				case l.GetName() != "name":
					labels = append(labels, fmt.Sprintf("%s=%s", l.GetName(), l.GetValue()))
				}
			}
			if slices.Sort(labels); about && !other {
				out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().
					GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

var _ = Describe("Metrics of an install", func() {
	It("have its state, and are deleted with it", func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		in := installConfigMaps(ctx, ns, 2)
		was := getConfigMap(ctx, ns, "a")
		Expect(mergePatch(`{"data":{"value":"mine"}}`)(ctx, was)).To(Succeed())
		awaitRestored(ctx, was)
		Eventually(func(g Gomega) {
			got := series(ns)
			g.Expect(got).To(HaveKeyWithValue("gotk_reconcile_duration_seconds{kind=KsctlInstall}",
				BeNumerically(">=", 1)))
			g.Expect(got).To(HaveKeyWithValue("ksctl_drift_corrected_total{}", BeNumerically(">=", 1)))
			delete(got, "gotk_reconcile_duration_seconds{kind=KsctlInstall}")
			delete(got, "ksctl_drift_corrected_total{}")
			g.Expect(got).To(Equal(map[string]float64{
				"ksctl_resource_info{kind=KsctlInstall,ready=True,reason=ReconciliationSucceeded,suspended=false}": 1,
				"ksctl_install_components{state=ready}": 1, "ksctl_install_components{state=unready}": 0,
				"ksctl_install_objects{state=ready}": 2, "ksctl_install_objects{state=unready}": 0,
			}))
		}, soon).Should(Succeed())

		Expect(plane.Client().Delete(ctx, in)).To(Succeed())
		deleteAndWait(ctx, in)
		Eventually(func() map[string]float64 { return series(ns) }, soon).Should(BeEmpty())
	})
})
