package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// ofPool are the labels of what is told of one pool of a KsctlAutoScaler.
var ofPool = append(object[:len(object):len(object)], "pool")

func describePool(name, help string, labels ...string) *prometheus.Desc {
	return describe(name, help, append(ofPool[:len(ofPool):len(ofPool)], labels...)...)
}

var (
	degraded = describe("ksctl_autoscaler_degraded", "Whether a pool of a KsctlAutoScaler could not be brought to its target: 1 while its condition Degraded is True.", object...)
	machines = describePool("ksctl_autoscaler_pool_machines", "Machines of a pool, as in the status of its KsctlAutoScaler, by state: target, registered, ready, creating or deleting.", "state")
	minSize  = describePool("ksctl_autoscaler_pool_min_size", "The fewest machines that a pool may have.")
	maxSize  = describePool("ksctl_autoscaler_pool_max_size", "The most machines that a pool may have.")
	backoff  = describePool("ksctl_autoscaler_pool_backoff", "Whether a pool is left alone after a failure, 1 or 0, by the operation that failed (ScaleUp: nothing is made, ScaleDown: nothing is deleted) and its code, while that is remembered.", "operation", "code")
	failures = describePool("ksctl_autoscaler_pool_failures", "Failures of a pool one after the other. They are forgotten when such an operation succeeds, and an hour after the back-off.")

	ofScaling = []*prometheus.Desc{degraded, machines, minSize, maxSize, backoff, failures}
)

func newScaled() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ksctl_autoscaler_operations_total",
		Help: "Operations of a pool that ended, by kind (ScaleUp, ScaleDown or Recount) and how: Succeeded, or the code of the failure.",
	}, append(ofPool[:len(ofPool):len(ofPool)], "operation", "result"))
}

// scaling are the numbers of a KsctlAutoScaler and of its pools.
func scaling(o *clusterv1.KsctlAutoScaler) []number {
	// What nothing is done about need wake nobody: of the troubles of before none is told.
	idle := o.Spec.Suspend || o.DeletionTimestamp != nil
	var trouble float64
	if !idle && apimeta.IsStatusConditionTrue(o.Status.Conditions, clusterv1.DegradedCondition) {
		trouble = 1
	}
	out := []number{count(degraded, trouble)}
	told := map[string]*clusterv1.WorkerPoolStatus{}
	for i := range o.Status.Pools {
		told[o.Status.Pools[i].Name] = &o.Status.Pools[i]
	}
	for i := range o.Spec.Pools {
		p := &o.Spec.Pools[i]
		out = append(out, count(minSize, float64(p.MinSize), p.Name), count(maxSize, float64(p.MaxSize), p.Name))
		if s := told[p.Name]; s != nil {
			out = append(out, pool(s, idle)...)
		}
	}
	return out
}

// pool are the numbers of the status of a pool.
func pool(s *clusterv1.WorkerPoolStatus, idle bool) []number {
	out := []number{
		count(machines, float64(s.Target), s.Name, "target"), count(machines, float64(s.Registered), s.Name, "registered"),
		count(machines, float64(s.Ready), s.Name, "ready"), count(machines, float64(s.Creating), s.Name, "creating"),
		count(machines, float64(s.Deleting), s.Name, "deleting"),
	}
	b := s.Backoff
	if b == nil || idle {
		return append(out, count(backoff, 0, s.Name, "", ""), count(failures, 0, s.Name))
	}
	waits := count(backoff, 1, s.Name, string(b.Operation), b.Code)
	waits.until = b.Until.Time
	return append(out, waits, count(failures, float64(b.Failures), s.Name))
}

// Scaled counts an operation of a pool that has ended.
func (r *Recorder) Scaled(key types.NamespacedName, pool, operation, result string) {
	r.scaled.WithLabelValues(key.Namespace, key.Name, pool, operation, result).Inc()
}

// dropPools forgets what was counted of pools that are not there any more.
func (r *Recorder) dropPools(key types.NamespacedName, before, after []number) {
	for i := range before {
		n := &before[i]
		stays := func(m number) bool { return m.of == maxSize && m.labels[0] == n.labels[0] }
		if n.of == maxSize && !slices.ContainsFunc(after, stays) {
			r.scaled.DeletePartialMatch(prometheus.Labels{ofPool[0]: key.Namespace, ofPool[1]: key.Name, ofPool[2]: n.labels[0]})
		}
	}
}
