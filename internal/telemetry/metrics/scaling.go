package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// poolLabels are the labels of a pool of a KsctlAutoScaler.
var poolLabels = slices.Concat(objectLabels, []string{"pool"})

func describePool(name, help string, further ...string) *prometheus.Desc {
	return describe(name, help, append([]string{"pool"}, further...)...)
}

var (
	degradedDesc = describe("ksctl_autoscaler_degraded",
		"Whether the condition Degraded of a KsctlAutoScaler is True, 1 or 0: a pool does not reach its target size.")
	machinesDesc = describePool("ksctl_autoscaler_pool_machines",
		"Machines of a pool, as in the status of its KsctlAutoScaler, by state: target, registered, ready, creating "+
			"or deleting.", "state")
	minSizeDesc = describePool("ksctl_autoscaler_pool_min_size", "Minimum number of machines of a pool.")
	maxSizeDesc = describePool("ksctl_autoscaler_pool_max_size", "Maximum number of machines of a pool.")
	backoffDesc = describePool("ksctl_autoscaler_pool_backoff", "Whether a pool backs off after a failure, 1 or 0, "+
		"by the failed operation (ScaleUp: no machines are created, ScaleDown: no machines are deleted) and its "+
		"error code, as long as the status has the failure.", "operation", "code")
	failuresDesc = describePool("ksctl_autoscaler_pool_failures",
		"Consecutive failures of a pool. Reset when an operation of the same kind succeeds, and one hour after the "+
			"backoff.")

	scalingDescs = []*prometheus.Desc{degradedDesc, machinesDesc, minSizeDesc, maxSizeDesc, backoffDesc, failuresDesc}
)

// autoscalerSamples returns the samples of a KsctlAutoScaler and of its pools.
func autoscalerSamples(o *clusterv1.KsctlAutoScaler) []sample {
	// A suspended or deleted object exports no earlier failures: an alert for them has no use.
	inactive := o.Spec.Suspend || o.DeletionTimestamp != nil
	var degradedValue float64
	if !inactive && apimeta.IsStatusConditionTrue(o.Status.Conditions, clusterv1.DegradedCondition) {
		degradedValue = 1
	}
	out := []sample{newSample(degradedDesc, degradedValue)}
	statusByPool := map[string]*clusterv1.WorkerPoolStatus{}
	for i := range o.Status.Pools {
		statusByPool[o.Status.Pools[i].Name] = &o.Status.Pools[i]
	}
	for i := range o.Spec.Pools {
		p := &o.Spec.Pools[i]
		out = append(out, newSample(minSizeDesc, float64(p.MinSize), p.Name),
			newSample(maxSizeDesc, float64(p.MaxSize), p.Name))
		if s := statusByPool[p.Name]; s != nil {
			out = append(out, poolSamples(s, inactive)...)
		}
	}
	return out
}

// poolSamples returns the samples of the status of a pool.
func poolSamples(s *clusterv1.WorkerPoolStatus, inactive bool) []sample {
	var out []sample
	for state, n := range map[string]int32{"target": s.Target, "registered": s.Registered, "ready": s.Ready,
		"creating": s.Creating, "deleting": s.Deleting} {
		out = append(out, newSample(machinesDesc, float64(n), s.Name, state))
	}
	b := s.Backoff
	if b == nil || inactive {
		return append(out, newSample(backoffDesc, 0, s.Name, "", ""), newSample(failuresDesc, 0, s.Name))
	}
	backoffSample := newSample(backoffDesc, 1, s.Name, string(b.Operation), b.Code)
	backoffSample.until = b.Until.Time
	return append(out, backoffSample, newSample(failuresDesc, float64(b.Failures), s.Name))
}

// RecordOperation counts a completed operation of a pool.
func (r *Recorder) RecordOperation(key types.NamespacedName, pool, operation, result string) {
	r.operations.WithLabelValues(key.Namespace, key.Name, pool, operation, result).Inc()
}

// deleteRemovedPools deletes the operation counters of pools that are in before and not in after.
func (r *Recorder) deleteRemovedPools(key types.NamespacedName, before, after []sample) {
	for i := range before {
		n := &before[i]
		remains := func(m sample) bool { return m.desc == maxSizeDesc && m.labels[0] == n.labels[0] }
		if n.desc == maxSizeDesc && !slices.ContainsFunc(after, remains) {
			r.operations.DeletePartialMatch(prometheus.Labels{poolLabels[0]: key.Namespace, poolLabels[1]: key.Name,
				poolLabels[2]: n.labels[0]})
		}
	}
}
