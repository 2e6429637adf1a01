package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newAutoscaler returns a KsctlAutoScaler with a pool that backs off for a minute, one that does
// not, and one without status.
func newAutoscaler() *clusterv1.KsctlAutoScaler {
	o := &clusterv1.KsctlAutoScaler{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	o.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", MinSize: 1, MaxSize: 6}, {Name: "large", MaxSize: 3},
		{Name: "new", MaxSize: 2}}
	o.Status.Conditions = []metav1.Condition{{Type: clusterv1.DegradedCondition, Status: metav1.ConditionTrue}}
	o.Status.Pools = []clusterv1.WorkerPoolStatus{
		{Name: "small", Target: 5, Registered: 3, Ready: 2, Creating: 2, Deleting: 1, Backoff: &clusterv1.PoolBackoff{
			Operation: clusterv1.OperationScaleUp, Code: "OutOfResources", Message: "no more", Failures: 2,
			Until: metav1.NewTime(noon.Add(time.Minute))}},
		{Name: "large", Target: 1, Registered: 1, Ready: 1},
		{Name: "gone", Target: 1},
	}
	return o
}

// recorderWithAutoscaler returns a Recorder with that KsctlAutoScaler and some operations.
func recorderWithAutoscaler() *Recorder {
	r := NewRecorder()
	r.now = func() time.Time { return noon }
	r.RecordStatus("KsctlAutoScaler", newAutoscaler())
	r.RecordOperation(web, "small", "ScaleUp", "Succeeded")
	r.RecordOperation(web, "small", "ScaleUp", "OutOfResources")
	r.RecordOperation(web, "small", "ScaleUp", "OutOfResources")
	r.RecordOperation(web, "large", "ScaleDown", "Succeeded")
	return r
}

func TestPoolMetrics(t *testing.T) {
	const want = `
# HELP ksctl_autoscaler_degraded Whether the condition Degraded of a KsctlAutoScaler is True, 1 or 0: a pool does not reach its target size.
# TYPE ksctl_autoscaler_degraded gauge
ksctl_autoscaler_degraded{exported_namespace="shop",name="web"} 1
# HELP ksctl_autoscaler_operations_total Completed operations of a pool, by kind (ScaleUp, ScaleDown or Recount) and result: Succeeded, or the error code.
# TYPE ksctl_autoscaler_operations_total counter
ksctl_autoscaler_operations_total{exported_namespace="shop",name="web",operation="ScaleDown",pool="large",result="Succeeded"} 1
ksctl_autoscaler_operations_total{exported_namespace="shop",name="web",operation="ScaleUp",pool="small",result="OutOfResources"} 2
ksctl_autoscaler_operations_total{exported_namespace="shop",name="web",operation="ScaleUp",pool="small",result="Succeeded"} 1
# HELP ksctl_autoscaler_pool_backoff Whether a pool backs off after a failure, 1 or 0, by the failed operation (ScaleUp: no machines are created, ScaleDown: no machines are deleted) and its error code, as long as the status has the failure.
# TYPE ksctl_autoscaler_pool_backoff gauge
ksctl_autoscaler_pool_backoff{code="",exported_namespace="shop",name="web",operation="",pool="large"} 0
ksctl_autoscaler_pool_backoff{code="OutOfResources",exported_namespace="shop",name="web",operation="ScaleUp",pool="small"} 1
# HELP ksctl_autoscaler_pool_failures Consecutive failures of a pool. Reset when an operation of the same kind succeeds, and one hour after the backoff.
# TYPE ksctl_autoscaler_pool_failures gauge
ksctl_autoscaler_pool_failures{exported_namespace="shop",name="web",pool="large"} 0
ksctl_autoscaler_pool_failures{exported_namespace="shop",name="web",pool="small"} 2
# HELP ksctl_autoscaler_pool_machines Machines of a pool, as in the status of its KsctlAutoScaler, by state: target, registered, ready, creating or deleting.
# TYPE ksctl_autoscaler_pool_machines gauge
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="large",state="creating"} 0
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="large",state="deleting"} 0
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="large",state="ready"} 1
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="large",state="registered"} 1
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="large",state="target"} 1
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="small",state="creating"} 2
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="small",state="deleting"} 1
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="small",state="ready"} 2
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="small",state="registered"} 3
ksctl_autoscaler_pool_machines{exported_namespace="shop",name="web",pool="small",state="target"} 5
# HELP ksctl_autoscaler_pool_max_size Maximum number of machines of a pool.
# TYPE ksctl_autoscaler_pool_max_size gauge
ksctl_autoscaler_pool_max_size{exported_namespace="shop",name="web",pool="large"} 3
ksctl_autoscaler_pool_max_size{exported_namespace="shop",name="web",pool="new"} 2
ksctl_autoscaler_pool_max_size{exported_namespace="shop",name="web",pool="small"} 6
# HELP ksctl_autoscaler_pool_min_size Minimum number of machines of a pool.
# TYPE ksctl_autoscaler_pool_min_size gauge
ksctl_autoscaler_pool_min_size{exported_namespace="shop",name="web",pool="large"} 0
ksctl_autoscaler_pool_min_size{exported_namespace="shop",name="web",pool="new"} 0
ksctl_autoscaler_pool_min_size{exported_namespace="shop",name="web",pool="small"} 1
`
	reg := registry(t, recorderWithAutoscaler())
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "ksctl_autoscaler_") {
			names = append(names, f.GetName())
		}
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// expectBackoff compares the backoff metric. labels and value are those of the small pool.
func expectBackoff(t *testing.T, r *Recorder, labels, value string) {
	t.Helper()
	want := `
# HELP ksctl_autoscaler_pool_backoff Whether a pool backs off after a failure, 1 or 0, by the failed operation (ScaleUp: no machines are created, ScaleDown: no machines are deleted) and its error code, as long as the status has the failure.
# TYPE ksctl_autoscaler_pool_backoff gauge
ksctl_autoscaler_pool_backoff{code="",exported_namespace="shop",name="web",operation="",pool="large"} 0
ksctl_autoscaler_pool_backoff{` + labels + `,pool="small"} ` + value + "\n"
	if err := testutil.GatherAndCompare(registry(t, r), strings.NewReader(want),
		"ksctl_autoscaler_pool_backoff"); err != nil {
		t.Error(err)
	}
}

func TestBackoffMetricExpires(t *testing.T) {
	r := recorderWithAutoscaler()
	const labels = `code="OutOfResources",exported_namespace="shop",name="web",operation="ScaleUp"`
	r.now = func() time.Time { return noon.Add(time.Minute - time.Second) }
	expectBackoff(t, r, labels, "1")
	r.now = func() time.Time { return noon.Add(time.Minute) }
	expectBackoff(t, r, labels, "0")
}

func TestInactiveAutoscalerReportsNoFailures(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.KsctlAutoScaler){
		"suspended": func(o *clusterv1.KsctlAutoScaler) { o.Spec.Suspend = true },
		"deleted":   func(o *clusterv1.KsctlAutoScaler) { o.DeletionTimestamp = &metav1.Time{Time: noon} },
	} {
		t.Run(name, func(t *testing.T) {
			r, o := recorderWithAutoscaler(), newAutoscaler()
			change(o)
			r.RecordStatus("KsctlAutoScaler", o)
			expectBackoff(t, r, `code="",exported_namespace="shop",name="web",operation=""`, "0")
			for _, n := range r.states[objectKey{"KsctlAutoScaler", web}].samples {
				if (n.desc == degradedDesc || n.desc == failuresDesc) && n.value > 0 {
					t.Errorf("%s is %v, want 0", n.desc, n.value)
				}
			}
		})
	}
}

func TestRecordStatusDeletesSeriesOfRemovedPool(t *testing.T) {
	r, o := recorderWithAutoscaler(), newAutoscaler()
	reg := registry(t, r)
	o.Spec.Pools = o.Spec.Pools[1:]
	r.RecordStatus("KsctlAutoScaler", o)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "pool" && l.GetValue() != "large" && l.GetValue() != "new" {
					t.Errorf("%s still has a series of pool %s", f.GetName(), l.GetValue())
				} else if l.GetName() == "pool" {
					others++
				}
			}
		}
	}
	if others != 12 { // 10 of the pool large, with its counter, and 2 of the pool new
		t.Errorf("got %d series of the other pools, want 12", others)
	}
}

func TestForgetDeletesSeriesOfAutoscaler(t *testing.T) {
	r := recorderWithAutoscaler()
	other := web
	other.Name = "other"
	r.RecordOperation(other, "small", "ScaleUp", "Succeeded")
	reg := registry(t, r)
	r.Forget("KsctlInstall", web)
	if n, err := testutil.GatherAndCount(reg, "ksctl_autoscaler_operations_total"); n != 4 || err != nil {
		t.Errorf("Forget of an install with the same name deleted %d of 4 series: %v", 4-n, err)
	}
	r.Forget("KsctlAutoScaler", web)
	const others = 2 // the operations of the other object, and failed handshakes
	if n, err := testutil.GatherAndCount(reg); n != others || err != nil {
		t.Errorf("%d series are left: %v", n-others, err)
	}
}
