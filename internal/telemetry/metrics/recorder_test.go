package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func registry(t *testing.T, r *Recorder) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(r); err != nil {
		t.Fatal(err)
	}
	return reg
}

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

func install(ready metav1.ConditionStatus, reason string, components ...appsv1.ComponentStatus) *appsv1.KsctlInstall {
	in := &appsv1.KsctlInstall{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	in.Status.Components = components
	if ready != "" {
		in.Status.Conditions = []metav1.Condition{{Type: "Reconciling", Status: "True", Reason: "Other"},
			{Type: "Ready", Status: ready, Reason: reason}}
	}
	return in
}

// recorderWithAllKinds returns a Recorder with an object of each kind.
func recorderWithAllKinds() *Recorder {
	r := NewRecorder()
	gone := metav1.Unix(1700000000, 0)
	in := install("False", "Timeout", appsv1.ComponentStatus{Name: "a", Ready: true, Objects: 3},
		appsv1.ComponentStatus{Name: "b", Objects: 4},
		appsv1.ComponentStatus{Name: "c", Objects: 5})
	in.DeletionTimestamp = &gone
	r.RecordStatus("KsctlInstall", in)
	r.RecordStatus("KsctlRemove",
		&appsv1.KsctlRemove{ObjectMeta: in.ObjectMeta,
			Status: appsv1.KsctlRemoveStatus{Removed: ptr.To[int32](2), Left: ptr.To[int32](1)}})
	r.RecordStatus("KsctlSource", &appsv1.KsctlSource{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: appsv1.KsctlSourceSpec{Schedule: appsv1.Schedule{Suspend: true}}})
	r.RecordDriftCorrections(web, 2)
	r.RecordDriftCorrections(web, 1)
	for _, kind := range []string{"KsctlInstall", "KsctlRemove", "KsctlSource"} {
		r.RecordDuration(kind, web, time.Now())
	}
	return r
}

func TestObjectMetrics(t *testing.T) {
	const want = `
# HELP ksctl_drift_corrected_total Objects of a KsctlInstall that were changed or deleted by others, and corrected.
# TYPE ksctl_drift_corrected_total counter
ksctl_drift_corrected_total{exported_namespace="shop",name="web"} 3
# HELP ksctl_install_components Components of a KsctlInstall, by state: ready or unready.
# TYPE ksctl_install_components gauge
ksctl_install_components{exported_namespace="shop",name="web",state="ready"} 1
ksctl_install_components{exported_namespace="shop",name="web",state="unready"} 2
# HELP ksctl_install_objects Objects of a KsctlInstall, by the state of their component: ready or unready.
# TYPE ksctl_install_objects gauge
ksctl_install_objects{exported_namespace="shop",name="web",state="ready"} 3
ksctl_install_objects{exported_namespace="shop",name="web",state="unready"} 9
# HELP ksctl_nodegroup_failed_handshakes_total Connections that failed the TLS handshake, such as those without a valid client certificate.
# TYPE ksctl_nodegroup_failed_handshakes_total counter
ksctl_nodegroup_failed_handshakes_total 0
# HELP ksctl_remove_objects Objects of a KsctlRemove, by state: removed, or left for objects that are kept.
# TYPE ksctl_remove_objects gauge
ksctl_remove_objects{exported_namespace="shop",name="web",state="left"} 1
ksctl_remove_objects{exported_namespace="shop",name="web",state="removed"} 2
# HELP ksctl_resource_deletion_timestamp_seconds Deletion timestamp of an object that is being deleted, as a Unix time. The object still owns other objects.
# TYPE ksctl_resource_deletion_timestamp_seconds gauge
ksctl_resource_deletion_timestamp_seconds{exported_namespace="shop",kind="KsctlInstall",name="web"} 1.7e+09
ksctl_resource_deletion_timestamp_seconds{exported_namespace="shop",kind="KsctlRemove",name="web"} 1.7e+09
# HELP ksctl_resource_info Status of an object, always 1: status and reason of its condition Ready (True, False or Unknown), and whether reconciliation is suspended.
# TYPE ksctl_resource_info gauge
ksctl_resource_info{exported_namespace="shop",kind="KsctlInstall",name="web",ready="False",reason="Timeout",suspended="false"} 1
ksctl_resource_info{exported_namespace="shop",kind="KsctlRemove",name="web",ready="Unknown",reason="",suspended="false"} 1
ksctl_resource_info{exported_namespace="shop",kind="KsctlSource",name="web",ready="Unknown",reason="",suspended="true"} 1
`
	reg := registry(t, recorderWithAllKinds())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	durations := uint64(0)
	for _, f := range families {
		if f.GetName() != "gotk_reconcile_duration_seconds" {
			names = append(names, f.GetName())
			continue
		}
		for _, m := range f.GetMetric() {
			durations += m.GetHistogram().GetSampleCount()
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if durations != 3 {
		t.Errorf("got %d durations, want 3", durations)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestRecordStatusReplacesSeries(t *testing.T) {
	r := NewRecorder()
	for _, in := range []*appsv1.KsctlInstall{install("", ""), install("Unknown", "Progressing"),
		install("True", "ReconciliationSucceeded")} {
		r.RecordStatus("KsctlInstall", in)
	}
	if n, err := testutil.GatherAndCount(registry(t, r), "ksctl_resource_info"); n != 1 || err != nil {
		t.Errorf("got %d series of one object: %v", n, err)
	}
}

func TestForgetDeletesSeriesOfObject(t *testing.T) {
	r := recorderWithAllKinds()
	reg := registry(t, r)
	for _, kind := range []string{"KsctlRemove", "KsctlSource"} {
		r.Forget(kind, web)
	}
	if n, err := testutil.GatherAndCount(reg, "ksctl_drift_corrected_total", "ksctl_install_objects"); n != 3 ||
		err != nil {
		t.Errorf("Forget of other kinds with the same name deleted %d of 3 series of the install: %v", 3-n, err)
	}
	r.Forget("KsctlInstall", web)
	const process = 1 // failed handshakes, which belong to no object
	if n, err := testutil.GatherAndCount(reg); n != process || err != nil {
		t.Errorf("%d series are left: %v", n-process, err)
	}
}

func TestCollectSendsWithoutLock(t *testing.T) {
	r := recorderWithAllKinds()
	to := make(chan prometheus.Metric)
	go func() {
		defer close(to)
		r.Collect(to)
	}()
	<-to // the scrape stops reading here
	if !r.mu.TryLock() {
		t.Fatal("the recorder is locked during a scrape")
	}
	r.mu.Unlock()
	for range to { //nolint:revive // drain, so that the goroutine ends
	}
}

func TestRegisterSharesOneRecorder(t *testing.T) {
	reg := prometheus.NewRegistry()
	first, err := Register(reg)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Register(reg)
	if err != nil || first != second {
		t.Errorf("two recorders of one registry: %v", err)
	}
	nowhere, err := Register(nil)
	if err != nil || nowhere == first {
		t.Errorf("without a registry: the registered recorder, or %v", err)
	}
}

func TestRegisterReportsAConflict(t *testing.T) {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "ksctl_drift_corrected_total",
		Help: "of somebody else"}))
	if _, err := Register(reg); err == nil || !strings.Contains(err.Error(), "registering metrics: ") {
		t.Errorf("a name that is taken: %v", err)
	}
}
