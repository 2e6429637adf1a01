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

// scaler has a pool that backs off for a minute, one that does not, and one of which nothing is known yet.
func scaler() *clusterv1.KsctlAutoScaler {
	o := &clusterv1.KsctlAutoScaler{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	o.Spec.Pools = []clusterv1.WorkerPool{{Name: "small", MinSize: 1, MaxSize: 6}, {Name: "large", MaxSize: 3}, {Name: "new", MaxSize: 2}}
	o.Status.Conditions = []metav1.Condition{{Type: clusterv1.DegradedCondition, Status: metav1.ConditionTrue}}
	o.Status.Pools = []clusterv1.WorkerPoolStatus{
		{Name: "small", Target: 5, Registered: 3, Ready: 2, Creating: 2, Deleting: 1, Backoff: &clusterv1.PoolBackoff{
			Operation: clusterv1.OperationScaleUp, Code: "OutOfResources", Message: "no more", Failures: 2, Until: metav1.NewTime(noon.Add(time.Minute))}},
		{Name: "large", Target: 1, Registered: 1, Ready: 1},
		{Name: "gone", Target: 1},
	}
	return o
}

// scaled returns a recorder that knows of it.
func scaled() *Recorder {
	r := NewRecorder()
	r.now = func() time.Time { return noon }
	r.Stands("KsctlAutoScaler", scaler())
	r.Scaled(web, "small", "ScaleUp", "Succeeded")
	r.Scaled(web, "small", "ScaleUp", "OutOfResources")
	r.Scaled(web, "small", "ScaleUp", "OutOfResources")
	r.Scaled(web, "large", "ScaleDown", "Succeeded")
	return r
}

func TestHowPoolsStand(t *testing.T) {
	const want = `
# HELP ksctl_autoscaler_degraded Whether a pool of a KsctlAutoScaler could not be brought to its target: 1 while its condition Degraded is True.
# TYPE ksctl_autoscaler_degraded gauge
ksctl_autoscaler_degraded{exported_namespace="shop",name="web"} 1
# HELP ksctl_autoscaler_operations_total Operations of a pool that ended, by kind (ScaleUp, ScaleDown or Recount) and how: Succeeded, or the code of the failure.
# TYPE ksctl_autoscaler_operations_total counter
ksctl_autoscaler_operations_total{exported_namespace="shop",name="web",operation="ScaleDown",pool="large",result="Succeeded"} 1
ksctl_autoscaler_operations_total{exported_namespace="shop",name="web",operation="ScaleUp",pool="small",result="OutOfResources"} 2
ksctl_autoscaler_operations_total{exported_namespace="shop",name="web",operation="ScaleUp",pool="small",result="Succeeded"} 1
# HELP ksctl_autoscaler_pool_backoff Whether a pool is left alone after a failure, 1 or 0, by the operation that failed (ScaleUp: nothing is made, ScaleDown: nothing is deleted) and its code, while that is remembered.
# TYPE ksctl_autoscaler_pool_backoff gauge
ksctl_autoscaler_pool_backoff{code="",exported_namespace="shop",name="web",operation="",pool="large"} 0
ksctl_autoscaler_pool_backoff{code="OutOfResources",exported_namespace="shop",name="web",operation="ScaleUp",pool="small"} 1
# HELP ksctl_autoscaler_pool_failures Failures of a pool one after the other. They are forgotten when such an operation succeeds, and an hour after the back-off.
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
# HELP ksctl_autoscaler_pool_max_size The most machines that a pool may have.
# TYPE ksctl_autoscaler_pool_max_size gauge
ksctl_autoscaler_pool_max_size{exported_namespace="shop",name="web",pool="large"} 3
ksctl_autoscaler_pool_max_size{exported_namespace="shop",name="web",pool="new"} 2
ksctl_autoscaler_pool_max_size{exported_namespace="shop",name="web",pool="small"} 6
# HELP ksctl_autoscaler_pool_min_size The fewest machines that a pool may have.
# TYPE ksctl_autoscaler_pool_min_size gauge
ksctl_autoscaler_pool_min_size{exported_namespace="shop",name="web",pool="large"} 0
ksctl_autoscaler_pool_min_size{exported_namespace="shop",name="web",pool="new"} 0
ksctl_autoscaler_pool_min_size{exported_namespace="shop",name="web",pool="small"} 1
`
	reg := registry(t, scaled())
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

// backs compares what is told of the back-off of the small pool, whose object stays as it is.
func backs(t *testing.T, r *Recorder, labels, value string) {
	t.Helper()
	want := `
# HELP ksctl_autoscaler_pool_backoff Whether a pool is left alone after a failure, 1 or 0, by the operation that failed (ScaleUp: nothing is made, ScaleDown: nothing is deleted) and its code, while that is remembered.
# TYPE ksctl_autoscaler_pool_backoff gauge
ksctl_autoscaler_pool_backoff{code="",exported_namespace="shop",name="web",operation="",pool="large"} 0
ksctl_autoscaler_pool_backoff{` + labels + `,pool="small"} ` + value + "\n"
	if err := testutil.GatherAndCompare(registry(t, r), strings.NewReader(want), "ksctl_autoscaler_pool_backoff"); err != nil {
		t.Error(err)
	}
}

func TestABackoffEndsByItself(t *testing.T) {
	r := scaled()
	const labels = `code="OutOfResources",exported_namespace="shop",name="web",operation="ScaleUp"`
	r.now = func() time.Time { return noon.Add(time.Minute - time.Second) }
	backs(t, r, labels, "1")
	r.now = func() time.Time { return noon.Add(time.Minute) }
	backs(t, r, labels, "0")
}

func TestWhatNobodySeesToIsNoTrouble(t *testing.T) {
	for name, change := range map[string]func(*clusterv1.KsctlAutoScaler){
		"suspended": func(o *clusterv1.KsctlAutoScaler) { o.Spec.Suspend = true },
		"leaving":   func(o *clusterv1.KsctlAutoScaler) { o.DeletionTimestamp = &metav1.Time{Time: noon} },
	} {
		t.Run(name, func(t *testing.T) {
			r, o := scaled(), scaler()
			change(o)
			r.Stands("KsctlAutoScaler", o)
			backs(t, r, `code="",exported_namespace="shop",name="web",operation=""`, "0")
			for _, n := range r.objects[id{"KsctlAutoScaler", web}].numbers {
				if (n.of == degraded || n.of == failures) && n.value > 0 {
					t.Errorf("%s is %v", n.of, n.value)
				}
			}
		})
	}
}

func TestNothingIsLeftOfAPoolThatIsGone(t *testing.T) {
	r, o := scaled(), scaler()
	reg := registry(t, r)
	o.Spec.Pools = o.Spec.Pools[1:]
	r.Stands("KsctlAutoScaler", o)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	others := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "pool" && l.GetValue() != "large" && l.GetValue() != "new" {
					t.Errorf("%s is still told of pool %s", f.GetName(), l.GetValue())
				} else if l.GetName() == "pool" {
					others++
				}
			}
		}
	}
	if others != 12 { // 10 of the large one, with its counter, and 2 of the new one
		t.Errorf("%d series of the other pools", others)
	}
}

func TestNothingIsLeftOfAnAutoScalerThatIsGone(t *testing.T) {
	r := scaled()
	other := web
	other.Name = "other"
	r.Scaled(other, "small", "ScaleUp", "Succeeded")
	reg := registry(t, r)
	r.Forget("KsctlInstall", web)
	if n, err := testutil.GatherAndCount(reg, "ksctl_autoscaler_operations_total"); n != 4 || err != nil {
		t.Errorf("an install of that name took %d of 4 series along: %v", 4-n, err)
	}
	r.Forget("KsctlAutoScaler", web)
	const others = 2 // the operations of the other object, and failed handshakes
	if n, err := testutil.GatherAndCount(reg); n != others || err != nil {
		t.Errorf("%d series are left: %v", n-others, err)
	}
}
