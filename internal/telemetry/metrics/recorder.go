package metrics

import (
	"errors"
	"fmt"
	"maps"
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
	// took and durations are what Flux's controllers have. They no longer report readiness and
	// suspension, so neither is reported here under their names.
	took              *fluxmetrics.Recorder
	durations         prometheus.Collector
	corrected, scaled *prometheus.CounterVec
	requests          requests
	now               func() time.Time

	mu      sync.Mutex
	objects map[id]standing
}

var (
	_ reconcile.Metrics    = (*Recorder)(nil)
	_ prometheus.Collector = (*Recorder)(nil)
)

type id struct {
	kind string
	types.NamespacedName
}

// standing is what is told of one object.
type standing struct {
	ready, reason string
	suspended     bool
	// leaving is since when it is being deleted; zero: it is not.
	leaving time.Time
	numbers []number
}

// number is one value of a kind of its own.
type number struct {
	of    *prometheus.Desc
	value float64
	// labels beside those of the object.
	labels []string
	// until then it is so, and 0 from then on: nothing need happen to the object at that time.
	// Zero: it stays.
	until time.Time
}

func count(of *prometheus.Desc, value float64, labels ...string) number {
	return number{of: of, value: value, labels: labels}
}

// The object's namespace has the name that Flux gives it: Prometheus calls the one of
// the controller's pod "namespace".
var object = []string{"exported_namespace", "name"}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	info = describe("ksctl_resource_info", "How an object stands, as 1: its condition Ready (True, False or Unknown), the reason of that, and whether it is suspended.",
		"kind", object[0], object[1], "ready", "reason", "suspended")
	deletion = describe("ksctl_resource_deletion_timestamp_seconds", "Since when an object is being deleted that still owns something, as a Unix time.",
		"kind", object[0], object[1])
	components = describe("ksctl_install_components", "Components of a KsctlInstall, by state: ready or unready.", object[0], object[1], "state")
	objects    = describe("ksctl_install_objects", "Objects of a KsctlInstall, by the state of their component: ready or unready.", object[0], object[1], "state")
	removal    = describe("ksctl_remove_objects", "Objects of a KsctlRemove, by state: removed, or left, which those have that are kept.", object[0], object[1], "state")
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
	r := &Recorder{
		took: fluxmetrics.NewRecorder(), objects: map[id]standing{}, scaled: newScaled(), requests: newRequests(), now: time.Now,
		corrected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ksctl_drift_corrected_total",
			Help: "Objects of a KsctlInstall that somebody had changed or deleted, and that were put right.",
		}, object),
	}
	for _, c := range r.took.Collectors() {
		if durations, ok := c.(*prometheus.HistogramVec); ok {
			r.durations = durations
		}
	}
	return r
}

// counters are the collectors that count events, beside the state of objects.
func (r *Recorder) counters() []prometheus.Collector {
	return append(r.requests.collectors(), r.durations, r.corrected, r.scaled)
}

// Took implements reconcile.Metrics.
func (r *Recorder) Took(kind string, key types.NamespacedName, start time.Time) {
	r.took.RecordDuration(reference(kind, key), start)
}

// Corrected counts objects of an install that were put right.
func (r *Recorder) Corrected(key types.NamespacedName, n int) {
	r.corrected.WithLabelValues(key.Namespace, key.Name).Add(float64(n))
}

// Stands implements reconcile.Metrics.
func (r *Recorder) Stands(kind string, o reconcile.Object) {
	s := standing{ready: "Unknown", suspended: o.Schedule().Suspend, numbers: numbers(o)}
	if c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, appsv1.ReadyCondition); c != nil {
		s.ready, s.reason = string(c.Status), c.Reason
	}
	if at := o.GetDeletionTimestamp(); at != nil {
		s.leaving = at.Time
	}
	at := id{kind, types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropPools(at.NamespacedName, r.objects[at].numbers, s.numbers)
	r.objects[at] = s
}

// numbers are those that only one kind has.
func numbers(o reconcile.Object) []number {
	switch o := o.(type) {
	case *appsv1.KsctlInstall:
		have, held := map[bool]float64{}, map[bool]float64{}
		for i := range o.Status.Components {
			c := &o.Status.Components[i]
			have[c.Ready]++
			held[c.Ready] += float64(c.Objects)
		}
		return []number{
			count(components, have[true], "ready"), count(components, have[false], "unready"),
			count(objects, held[true], "ready"), count(objects, held[false], "unready"),
		}
	case *appsv1.KsctlRemove:
		var out []number
		if n := o.Status.Removed; n != nil {
			out = append(out, count(removal, float64(*n), "removed"))
		}
		if n := o.Status.Left; n != nil {
			out = append(out, count(removal, float64(*n), "left"))
		}
		return out
	case *clusterv1.KsctlAutoScaler:
		return scaling(o)
	}
	return nil
}

// Forget implements reconcile.Metrics.
func (r *Recorder) Forget(kind string, key types.NamespacedName) {
	r.took.DeleteDuration(reference(kind, key))
	switch kind {
	case "KsctlInstall":
		r.corrected.DeleteLabelValues(key.Namespace, key.Name)
	case "KsctlAutoScaler":
		r.scaled.DeletePartialMatch(prometheus.Labels{object[0]: key.Namespace, object[1]: key.Name})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.objects, id{kind, key})
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(to chan<- *prometheus.Desc) {
	for _, d := range append([]*prometheus.Desc{info, deletion, components, objects, removal}, ofScaling...) {
		to <- d
	}
	for _, c := range r.counters() {
		c.Describe(to)
	}
}

// Collect implements prometheus.Collector. No reconcile waits for a scrape.
func (r *Recorder) Collect(to chan<- prometheus.Metric) {
	for _, c := range r.counters() {
		c.Collect(to)
	}
	r.mu.Lock()
	all := maps.Clone(r.objects)
	r.mu.Unlock()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	now := r.now()
	for id, s := range all {
		gauge(info, 1, id.kind, id.Namespace, id.Name, s.ready, s.reason, strconv.FormatBool(s.suspended))
		if !s.leaving.IsZero() {
			gauge(deletion, float64(s.leaving.Unix()), id.kind, id.Namespace, id.Name)
		}
		for _, n := range s.numbers {
			value := n.value
			if !n.until.IsZero() && !now.Before(n.until) {
				value = 0
			}
			gauge(n.of, value, append([]string{id.Namespace, id.Name}, n.labels...)...)
		}
	}
}

func reference(kind string, key types.NamespacedName) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: kind, Namespace: key.Namespace, Name: key.Name}
}
