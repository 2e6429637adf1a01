package autoscaler

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// released are the workers that are used again, where Cluster Autoscaler has marked some at a time.
func (w *world) released(p *plan, at time.Time, marked ...int) (map[int32]bool, time.Time) {
	f := w.fleet()
	for _, i := range marked {
		f.machines[i].node.Spec.Taints = []corev1.Taint{{Key: toBeDeletedTaint, Value: fmt.Sprint(at.Unix())}}
	}
	return p.released(&f, askTime(&w.obj.Spec), w.now)
}

func TestWhoIsUsedAgainIsNotCordoned(t *testing.T) {
	const other = `{"key":"other","effect":"NoSchedule"}`
	for name, c := range map[string]struct {
		marked, cordoned, keep bool
		size, want             string
	}{
		"by Cluster Autoscaler":              {marked: true, cordoned: true, want: `{"taints":[` + other + `],"unschedulable":null}`},
		"by Cluster Autoscaler, of no pool":  {marked: true, cordoned: true, size: "x-9", want: `{"taints":[` + other + `],"unschedulable":null}`},
		"by Cluster Autoscaler, and it goes": {marked: true, cordoned: true, keep: true},
		"by a person":                        {cordoned: true},
		"not":                                {marked: true, want: `{"taints":[` + other + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			n := node("demo-vm-wp-0", time.Hour, map[string]string{clusterv1.PoolLabel: "small"})
			n.ResourceVersion = "7"
			n.Spec = corev1.NodeSpec{ProviderID: "k3s://0", Unschedulable: c.cordoned, Taints: []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}}
			if c.marked {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: toBeDeletedTaint, Value: "1800000000", Effect: corev1.TaintEffectNoSchedule})
			}
			size := "s-1"
			if c.size != "" {
				size = c.size
			}
			f := newFleet(newHosts("demo"), testPools, []*corev1.Node{n}, sized(size))
			all := marks(&f, testPools, func(*machine) bool { return true }, map[int32]bool{0: !c.keep})
			if len(all) == 0 {
				all = []mark{{node: n}}
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
				t.Errorf("whoever changed the node meanwhile is overwritten: %s", raw)
			}
		})
	}
}

func TestADeletionThatIsCancelledLeavesNoMark(t *testing.T) {
	for name, commit := range map[string]func(*clusterv1.KsctlAutoScalerSpec){
		"minSize": func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{{Name: "small", NodeSize: "s-1", MinSize: 2, MaxSize: 4}}
		},
		"mode": func(spec *clusterv1.KsctlAutoScalerSpec) { spec.Mode = clusterv1.ScalingOff },
		"a pool taken out": func(spec *clusterv1.KsctlAutoScalerSpec) {
			spec.Pools = []clusterv1.WorkerPool{{Name: "large", NodeSize: "l-1", MaxSize: 4}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "s-1", "s-1", "s-1")
			at := w.now
			w.step(w.removeLast())
			p := w.step(w.removeLast()) // while the one before it is deleted
			if got := w.pool("small"); !atWork(p.op) || got.Change != -1 {
				t.Fatalf("%+v, pool %+v", p.op, got)
			}
			w.now = at.Add(time.Hour)
			if again, next := w.released(p, at, 1, 2); len(again) != 0 || !next.IsZero() {
				t.Fatalf("they still go: %v, next at %s", again, next)
			}
			commit(&w.obj.Spec)
			w.now = at.Add(time.Minute)
			p = w.step()
			due := time.Unix(at.Unix(), 0).Add(14*time.Minute + 30*time.Second)
			if again, next := w.released(p, at, 1, 2); len(again) != 0 || !next.Equal(due) {
				t.Fatalf("Cluster Autoscaler may still ask: %v, next at %s", again, next)
			}
			w.now = due
			if again, _ := w.released(p, at, 1, 2); len(again) != 1 || !again[1] {
				t.Fatalf("while the one behind it is deleted: %v", again)
			}
			w.carry(p.op, 1, agentSucceeded)
			p = w.step()
			if again, _ := w.released(p, at, 1); !again[1] {
				t.Fatalf("when that is gone: %v, %+v", again, p.op)
			}
		})
	}
}

func TestWhileCallsMayBeAtWorkNoMarkIsTakenOff(t *testing.T) {
	w := newPlain(t, "s-1", "s-1")
	at := w.now
	p := w.step(w.removeLast())
	w.carry(p.op, 0, agentFailed)
	w.word.code = CodeNoAnswer
	w.now = w.now.Add(time.Minute)
	p = w.step()
	p.op.Unsettled = true
	w.now = w.now.Add(time.Hour)
	if again, _ := w.released(p, at, 1); again[1] {
		t.Fatal("it may still be deleted")
	}
}

func TestHowLongClusterAutoscalerMayStillAsk(t *testing.T) {
	spec := &clusterv1.KsctlAutoScalerSpec{ScaleDown: &clusterv1.ScaleDown{MaxGracefulTermination: &metav1.Duration{Duration: time.Hour}}}
	if got := askTime(spec); got <= time.Hour+evictionTime {
		t.Errorf("%s: it waits for pods for an hour", got)
	}
	w := newWorld(t, "s-1")
	p := w.step()
	f := w.fleet()
	f.machines[0].node.Spec.Taints = []corev1.Taint{{Key: toBeDeletedTaint, Value: "today"}}
	if again, next := p.released(&f, 0, w.now); len(again) != 0 || !next.IsZero() {
		t.Errorf("a mark that says no time: %v, next at %s", again, next)
	}
}
