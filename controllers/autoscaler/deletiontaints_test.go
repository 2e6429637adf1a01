package autoscaler

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

// staleTaints returns the stale taints if Cluster Autoscaler has tainted some workers at a time.
func (w *simulation) staleTaints(p *scalingPlan, at time.Time, marked ...int) (map[int32]bool, time.Time) {
	f := w.machines()
	for _, i := range marked {
		f.list[i].node.Spec.Taints = []corev1.Taint{{Key: toBeDeletedTaint, Value: fmt.Sprint(at.Unix())}}
	}
	return p.staleTaints(&f, deletionRequestTimeout(&w.obj.Spec), w.now)
}

func TestStaleDeletionTaintIsRemovedAndNodeUncordoned(t *testing.T) {
	const other = `{"key":"other","effect":"NoSchedule"}`
	for name, c := range map[string]struct {
		marked, cordoned, keep bool
		size, want             string
	}{
		"tainted and cordoned": {marked: true, cordoned: true, want: `{"taints":[` + other +
			`],"unschedulable":null}`},
		"tainted and cordoned, in no pool": {marked: true, cordoned: true, size: "x-9", want: `{"taints":[` + other +
			`],"unschedulable":null}`},
		"tainted, deletion still expected": {marked: true, cordoned: true, keep: true},
		"cordoned by a user":               {cordoned: true},
		"tainted, not cordoned":            {marked: true, want: `{"taints":[` + other + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("demo-vm-wp-0", time.Hour, map[string]string{clusterv1.PoolLabel: "small"})
			n.ResourceVersion = "7"
			n.Spec = corev1.NodeSpec{ProviderID: "k3s://0", Unschedulable: c.cordoned,
				Taints: []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}}
			if c.marked {
				n.Spec.Taints = append(n.Spec.Taints,
					corev1.Taint{Key: toBeDeletedTaint, Value: "1800000000", Effect: corev1.TaintEffectNoSchedule})
			}
			size := "s-1"
			if c.size != "" {
				size = c.size
			}
			f := newMachines(newWorkerNames("demo"), testPools, []*corev1.Node{n}, completeList(size))
			all := nodeChanges(&f, testPools, func(*machine) bool { return true }, map[int32]bool{0: !c.keep})
			if len(all) == 0 {
				all = []nodeChange{{node: n}}
			}
			raw, err := all[0].patch()
			if err != nil {
				t.Fatal(err)
			}
			var patch struct {
				Metadata metav1.ObjectMeta
				Spec     json.RawMessage
			}
			if err := json.Unmarshal(raw, &patch); err != nil {
				t.Fatal(err)
			}
			if string(patch.Spec) != c.want {
				t.Errorf("%s, want %s", patch.Spec, c.want)
			}
			if c.want != "" && patch.Metadata.ResourceVersion != "7" {
				t.Errorf("the patch would overwrite a concurrent change of the node: %s", raw)
			}
		})
	}
}

func TestCanceledDeletionLeavesNoTaint(t *testing.T) {
	for name, commit := range map[string]func(*clusterv1.KsctlAutoScalerSpec){
		"minSize": func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 2, MaxSize: 4}}
		},
		"mode": func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Mode = clusterv1.ScalingOff },
		"removed pool": func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{{Name: "large", NodeSize: "l-1", MaxSize: 4}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSimulation(t, "s-1", "s-1", "s-1")
			at := w.now
			w.step(w.removeLast())
			p := w.step(w.removeLast()) // while the last machine is being deleted
			if got := w.pool("small"); !session.IsInProgress(p.op) || got.Change != -1 {
				t.Fatalf("%+v, pool %+v", p.op, got)
			}
			w.now = at.Add(time.Hour)
			if again, next := w.staleTaints(p, at, 1, 2); len(again) != 0 || !next.IsZero() {
				t.Fatalf("the deletions are pending: %v, next at %s", again, next)
			}
			commit(&w.obj.Spec)
			w.now = at.Add(time.Minute)
			p = w.step()
			due := time.Unix(at.Unix(), 0).Add(14*time.Minute + 30*time.Second)
			if again, next := w.staleTaints(p, at, 1, 2); len(again) != 0 || !next.Equal(due) {
				t.Fatalf("Cluster Autoscaler may still request the deletion: %v, next at %s", again, next)
			}
			w.now = due
			if again, _ := w.staleTaints(p, at, 1, 2); len(again) != 1 || !again[1] {
				t.Fatalf("while the last machine is being deleted: %v", again)
			}
			w.runOperation(p.op, 1, session.Succeeded)
			p = w.step()
			if again, _ := w.staleTaints(p, at, 1); !again[1] {
				t.Fatalf("after the last machine was deleted: %v, %+v", again, p.op)
			}
		})
	}
}

func TestDeletionTaintStaysWhileOperationIsUnsettled(t *testing.T) {
	w := newKsctlAgentSimulation(t, "s-1", "s-1")
	at := w.now
	p := w.step(w.removeLast())
	w.runOperation(p.op, 0, session.Failed)
	w.reported.Code = clusterv1.CodeNoAnswer
	w.now = w.now.Add(time.Minute)
	p = w.step()
	p.op.Unsettled = true
	w.now = w.now.Add(time.Hour)
	if again, _ := w.staleTaints(p, at, 1); again[1] {
		t.Fatal("the machine may still be deleted")
	}
}

func TestDeletionRequestTimeout(t *testing.T) {
	spec := &clusterv1.KsctlAutoScalerSpec{
		ScaleDown: &clusterv1.ScaleDown{MaxGracefulTermination: &metav1.Duration{Duration: time.Hour}}}
	if got := deletionRequestTimeout(spec); got <= time.Hour+evictionTime {
		t.Errorf("%s is too short: pods may take an hour to terminate", got)
	}
	w := newSimulation(t, "s-1")
	p := w.step()
	f := w.machines()
	f.list[0].node.Spec.Taints = []corev1.Taint{{Key: toBeDeletedTaint, Value: "today"}}
	if again, next := p.staleTaints(&f, 0, w.now); len(again) != 0 || !next.IsZero() {
		t.Errorf("a taint without a time: %v, next at %s", again, next)
	}
}
