package metrics

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	fluxmetrics "github.com/fluxcd/pkg/runtime/metrics"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// Recorder records the controller's metrics, and collects them for a registry. It keeps the
// state of each object as of its last reconcile, and reports it at each scrape.
type Recorder struct {
	// durations and durationHistogram are the reconcile durations, with the metric of the Flux
	// controllers. Flux no longer exports readiness and suspension, so the Flux metrics for these
	// are not exported here either.
	durations         *fluxmetrics.Recorder
	durationHistogram prometheus.Collector
	// What the controller does, receives, renders and sends, beside reconciles.
	driftCorrections, operations, commitStatuses, webhooks *prometheus.CounterVec
	nodeGroups, droppedEvents, restRequests                *prometheus.CounterVec
	nodeGroupDurations, renders, restDurations             *prometheus.HistogramVec
	handshakes                                             prometheus.Counter
	waitingEvents                                          *prometheus.GaugeVec

	now func() time.Time

	mu     sync.Mutex
	states map[objectKey]objectState
}

type objectKey struct {
	kind string
	types.NamespacedName
}

// objectState is the exported state of one object.
type objectState struct {
	ready, reason string
	suspended     bool
	// deletedAt is the deletion timestamp; zero if the object is not being deleted.
	deletedAt time.Time
	samples   []sample
}

// sample is the value of a metric that only one kind has.
type sample struct {
	desc  *prometheus.Desc
	value float64
	// labels are the label values after those of the object.
	labels []string
	// until is the time from which on the value is 0, without another reconcile of the object. The
	// zero time means that the value does not expire.
	until time.Time
}

func newSample(of *prometheus.Desc, value float64, labels ...string) sample {
	return sample{desc: of, value: value, labels: labels}
}

// objectLabels are the labels of an object. exported_namespace is the name that Flux uses, too:
// Prometheus sets the label namespace to the namespace of the controller's pod.
var objectLabels = []string{"exported_namespace", "name"}

// describe describes a metric of an object. further are the labels after those of the object.
func describe(name, help string, further ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, slices.Concat(objectLabels, further), nil)
}

var (
	infoDesc = prometheus.NewDesc("ksctl_resource_info",
		"Status of an object, always 1: status and reason of its condition Ready (True, False or Unknown), and "+
			"whether reconciliation is suspended.",
		[]string{"kind", objectLabels[0], objectLabels[1], "ready", "reason", "suspended"}, nil)
	deletionDesc = prometheus.NewDesc("ksctl_resource_deletion_timestamp_seconds",
		"Deletion timestamp of an object that is being deleted, as a Unix time. The object still owns other objects.",
		[]string{"kind", objectLabels[0], objectLabels[1]}, nil)
	componentsDesc = describe("ksctl_install_components", "Components of a KsctlInstall, by state: ready or unready.",
		"state")
	objectsDesc = describe("ksctl_install_objects",
		"Objects of a KsctlInstall, by the state of their component: ready or unready.", "state")
	removalDesc = describe("ksctl_remove_objects",
		"Objects of a KsctlRemove, by state: removed, or left for objects that are kept.", "state")
)

// Register returns the recorder that r collects from, and registers a new one if there is none:
// managers in one process share it. A nil r collects nothing.
func Register(r prometheus.Registerer) (*Recorder, error) {
	m := NewRecorder()
	if r == nil {
		return m, nil
	}
	err := r.Register(m)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if before, ok := there.ExistingCollector.(*Recorder); ok {
			return before, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	return m, nil
}

// NewRecorder returns an empty recorder.
func NewRecorder() *Recorder {
	r := &Recorder{durations: fluxmetrics.NewRecorder(), states: map[objectKey]objectState{}, now: time.Now}
	r.addRequestMetrics()
	r.driftCorrections = newCounters("ksctl_drift_corrected_total",
		"Objects of a KsctlInstall that were changed or deleted by others, and corrected.", objectLabels...)
	r.operations = newCounters("ksctl_autoscaler_operations_total",
		"Completed operations of a pool, by kind (ScaleUp, ScaleDown or Recount) and result: Succeeded, or the "+
			"error code.",
		slices.Concat(poolLabels, []string{"operation", "result"})...)
	for _, c := range r.durations.Collectors() {
		if durations, ok := c.(*prometheus.HistogramVec); ok {
			r.durationHistogram = durations
		}
	}
	return r
}

func newCounters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// counters are the collectors that count events, beside the state of objects.
func (r *Recorder) counters() []prometheus.Collector {
	return []prometheus.Collector{r.commitStatuses, r.webhooks, r.nodeGroups, r.nodeGroupDurations, r.handshakes,
		r.restRequests, r.restDurations, r.renders, r.droppedEvents, r.waitingEvents, r.durationHistogram,
		r.driftCorrections, r.operations}
}

// RecordDuration implements reconcile.Metrics.
func (r *Recorder) RecordDuration(kind string, key types.NamespacedName, start time.Time) {
	r.durations.RecordDuration(reference(kind, key), start)
}

// RecordDriftCorrections counts corrected objects of an install.
func (r *Recorder) RecordDriftCorrections(key types.NamespacedName, n int) {
	r.driftCorrections.WithLabelValues(key.Namespace, key.Name).Add(float64(n))
}

// RecordStatus implements reconcile.Metrics.
func (r *Recorder) RecordStatus(kind string, o reconcile.Object) {
	s := objectState{ready: "Unknown", suspended: o.Schedule().Suspend, samples: samplesOf(o)}
	if c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, appsv1.ReadyCondition); c != nil {
		s.ready, s.reason = string(c.Status), c.Reason
	}
	if at := o.GetDeletionTimestamp(); at != nil {
		s.deletedAt = at.Time
	}
	at := objectKey{kind, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleteRemovedPools(at.NamespacedName, r.states[at].samples, s.samples)
	r.states[at] = s
}

// samplesOf returns the samples that only one kind has.
func samplesOf(o reconcile.Object) []sample {
	switch o := o.(type) {
	case *appsv1.KsctlInstall:
		componentCount, objectCount := map[bool]float64{}, map[bool]float64{}
		for i := range o.Status.Components {
			c := &o.Status.Components[i]
			componentCount[c.Ready]++
			objectCount[c.Ready] += float64(c.Objects)
		}
		return []sample{
			newSample(componentsDesc, componentCount[true], "ready"),
			newSample(componentsDesc, componentCount[false], "unready"),
			newSample(objectsDesc, objectCount[true], "ready"), newSample(objectsDesc, objectCount[false], "unready"),
		}
	case *appsv1.KsctlRemove:
		var out []sample
		if n := o.Status.Removed; n != nil {
			out = append(out, newSample(removalDesc, float64(*n), "removed"))
		}
		if n := o.Status.Left; n != nil {
			out = append(out, newSample(removalDesc, float64(*n), "left"))
		}
		return out
	case *clusterv1.KsctlAutoScaler:
		return autoscalerSamples(o)
	}
	return nil
}

// Forget implements reconcile.Metrics.
func (r *Recorder) Forget(kind string, key types.NamespacedName) {
	r.durations.DeleteDuration(reference(kind, key))
	switch kind {
	case appsv1.KsctlInstallKind:
		r.driftCorrections.DeleteLabelValues(key.Namespace, key.Name)
	case clusterv1.KsctlAutoScalerKind:
		r.operations.DeletePartialMatch(prometheus.Labels{objectLabels[0]: key.Namespace, objectLabels[1]: key.Name})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.states, objectKey{kind, key})
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(to chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{infoDesc, deletionDesc, componentsDesc, objectsDesc, removalDesc},
		scalingDescs...) {
		to <- d
	}
	for _, c := range r.counters() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector. It holds no lock while it sends: a slow scrape must not
// block reconciles.
func (r *Recorder) Collect(to chan<- prometheus.Metric) {
	for _, c := range r.counters() {
		c.Collect(to)
	}
	r.mu.Lock()
	states := maps.Clone(r.states)
	r.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	now := r.now()
	for id, s := range states {
		gauge(infoDesc, 1, id.kind, id.Namespace, id.Name, s.ready, s.reason, strconv.FormatBool(s.suspended))
		if !s.deletedAt.IsZero() {
			gauge(deletionDesc, float64(s.deletedAt.Unix()), id.kind, id.Namespace, id.Name)
		}
		for _, n := range s.samples {
			value := n.value
			if !n.until.IsZero() && !now.Before(n.until) {
				value = 0
			}
			gauge(n.desc, value, append([]string{id.Namespace, id.Name}, n.labels...)...)
		}
	}
}

func reference(kind string, key types.NamespacedName) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: kind, Namespace: key.Namespace, Name: key.Name}
}
