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

// reservedDomains are those of labels and taints that mean something to others than who writes a pool.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "cluster.ksctl.com", "agent.ksctl.com"}

// validate refuses labels and taints that nodes can't have, or must not.
func validate(pools []clusterv1.WorkerPool) error {
	for i := range pools {
		p := &pools[i]
		if other := sizedAs(pools[:i], p.NodeSize); other != nil {
			return reconcile.Fail(InvalidPoolReason, "pools %s and %s are of the same nodeSize: give one of them another one", other.Name, p.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
			if err := validKey(name); err != nil {
				return reconcile.Fail(InvalidPoolReason, "pool %s: label %q: %w", p.Name, name, err)
			}
		}
		if errs := metav1validation.ValidateLabels(p.Labels, field.NewPath("labels")); len(errs) > 0 {
			return reconcile.Fail(InvalidPoolReason, "pool %s: %w", p.Name, errs.ToAggregate())
		}
		for _, t := range p.Taints {
			if err := validTaint(t); err != nil {
				return reconcile.Fail(InvalidPoolReason, "pool %s: taint %q: %w", p.Name, t.Key, err)
			}
		}
	}
	return nil
}

func validKey(name string) error {
	domain, _, prefixed := strings.Cut(name, "/")
	for _, reserved := range reservedDomains {
		if prefixed && (domain == reserved || strings.HasSuffix(domain, "."+reserved)) {
			return fmt.Errorf("labels and taints of %s are not a pool's to give: take another prefix", reserved)
		}
	}
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return fmt.Errorf("%s", strings.Join(errs, "; "))
	}
	return nil
}

func validTaint(t corev1.Taint) error {
	if err := validKey(t.Key); err != nil {
		return err
	}
	if errs := validation.IsValidLabelValue(t.Value); len(errs) > 0 {
		return fmt.Errorf("%s", strings.Join(errs, "; "))
	}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule:
		return nil
	}
	return fmt.Errorf("its effect is %q: want NoSchedule or PreferNoSchedule, as nodes that have joined may have pods", t.Effect)
}
