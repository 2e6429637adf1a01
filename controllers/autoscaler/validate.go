package autoscaler

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// reservedDomains are the prefixes of labels and taints that pools must not set, because other
// components interpret them.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "cluster.ksctl.com", "agent.ksctl.com"}

// validatePools rejects labels and taints that are invalid or reserved, and pools of the same size.
func validatePools(pools []clusterv1.WorkerPool) error {
	for i := range pools {
		p := &pools[i]
		if other := poolBySize(pools[:i], p.NodeSize); other != nil {
			return reconcile.NewTerminalError(clusterv1.InvalidPoolReason,
				"pools %s and %s have the same nodeSize: change one of them", other.Name, p.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
			if err := validateKey(name); err != nil {
				return reconcile.NewTerminalError(clusterv1.InvalidPoolReason, "pool %s: label %q: %w", p.Name, name,
					err)
			}
		}
		if errs := metav1validation.ValidateLabels(p.Labels, field.NewPath("labels")); len(errs) > 0 {
			return reconcile.NewTerminalError(clusterv1.InvalidPoolReason, "pool %s: %w", p.Name, errs.ToAggregate())
		}
		for _, t := range p.Taints {
			if err := validateTaint(t); err != nil {
				return reconcile.NewTerminalError(clusterv1.InvalidPoolReason, "pool %s: taint %q: %w", p.Name, t.Key,
					err)
			}
		}
	}
	return nil
}

func validateKey(name string) error {
	domain, _, prefixed := strings.Cut(name, "/")
	for _, reserved := range reservedDomains {
		if prefixed && (domain == reserved || strings.HasSuffix(domain, "."+reserved)) {
			return fmt.Errorf("prefix %s is reserved: use another one", reserved)
		}
	}
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return fmt.Errorf("%s", strings.Join(errs, "; "))
	}
	return nil
}

func validateTaint(t corev1.Taint) error {
	if err := validateKey(t.Key); err != nil {
		return err
	}
	if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
		return fmt.Errorf("%s", strings.Join(errs, "; "))
	}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
		return nil
	}
	return fmt.Errorf("invalid effect %q: use NoSchedule or PreferNoSchedule, because nodes may have pods before "+
		"they are tainted", t.Effect)
}
