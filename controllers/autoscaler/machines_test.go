package autoscaler

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/autoscaler/session"
)

func TestWorkerNames(t *testing.T) {
	names := newWorkerNames("demo")
	for name, want := range map[string]int32{
		"demo-vm-wp-0": 0, "demo-vm-wp-1-ab12c": 1, "demo-vm-wp-10-zzzzz": 10,
		"demo-vm-wp-01": -1, "demo-vm-wp-": -1, "demo-vm-wp-1-ab12": -1, "demo-vm-wp-1-ab12cd": -1,
		"demo-vm-wp-1-AB12C": -1,
		"demo-vm-cp-1":       -1, "xdemo-vm-wp-1": -1, "demo2-vm-wp-1": -1, "demo-vm-wp-99999999999": -1,
		"demo-vm-wp-1000000": -1,
	} {
		got, ok := names.index(name)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if _, ok := newWorkerNames("a.b").index("axb-vm-wp-1"); ok {
		t.Error("the name of the cluster is used as a pattern")
	}
}

// completeList returns the workers of an agent that lists them.
func completeList(sizes ...string) workerList {
	l := workerList{complete: true}
	for i, size := range sizes {
		l.machines = append(l.machines, machine{index: int32(i), size: size})
	}
	return l
}

func node(name string, age time.Duration, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels,
		CreationTimestamp: metav1.NewTime(time.Unix(1_800_000_000, 0).Add(-age))}}
}

func TestNewMachines(t *testing.T) {
	nodes := []*corev1.Node{
		node("demo-vm-cp-0", time.Hour, nil),
		node("demo-vm-wp-0", time.Hour, map[string]string{clusterv1.PoolLabel: "small"}),
		node("demo-vm-wp-1-aaaaa", time.Hour, nil),
		node("demo-vm-wp-1-bbbbb", time.Minute, map[string]string{corev1.LabelInstanceTypeStable: "l-1"}),
		node("demo-vm-wp-7-aaaaa", time.Hour, nil),
	}
	t.Run("agent that lists workers", func(t *testing.T) {
		f := newMachines(newWorkerNames("demo"), testPools, nodes, completeList("l-1", "s-1", "s-1"))
		if f.size() != 3 || f.otherNodes != 1 || len(f.orphanedNodes) != 2 {
			t.Fatalf("%d machines, %d others, %d strays", f.size(), f.otherNodes, len(f.orphanedNodes))
		}
		if m := f.list[0]; m.pool != "large" { // the reported size takes precedence over the label
			t.Errorf("worker 0 is in pool %q", m.pool)
		}
		if m := f.list[1]; m.node.Name != "demo-vm-wp-1-bbbbb" {
			t.Errorf("worker 1 has node %s, want the newer one", m.node.Name)
		}
		if f.list[2].node != nil {
			t.Error("worker 2 has joined")
		}
	})
	t.Run("ksctl's own agent", func(t *testing.T) {
		f := newMachines(newWorkerNames("demo"), testPools, nodes,
			workerList{machines: []machine{{index: 0}, {index: 1}}})
		if f.size() != 8 || f.list[0].pool != "small" || f.list[1].pool != "large" || f.list[7].pool != "" ||
			f.list[7].node == nil {
			t.Fatalf("%d machines: %+v", f.size(), f.list)
		}
	})
}

func TestUnlistedWorkersFollowFromTheLastOperation(t *testing.T) {
	ended := metav1.NewTime(time.Unix(1_800_000_000, 0))
	up := operation("up", 1, 3)
	up.State, up.EndedAt = clusterv1.OperationSucceeded, &ended
	f := newMachines(newWorkerNames("demo"), testPools,
		[]*corev1.Node{node("demo-vm-wp-0", time.Hour, map[string]string{clusterv1.PoolLabel: "small"})},
		workerList{machines: []machine{{index: 0}, {index: 1}, {index: 2}}, lastOperation: up})
	if f.list[1].pool != "small" || f.list[2].pool != "small" {
		t.Errorf("%+v", f.list)
	}
	down := operation("down", 3, 2)
	down.State, down.EndedAt = clusterv1.OperationSucceeded, &ended
	f = newMachines(newWorkerNames("demo"), testPools, []*corev1.Node{node("demo-vm-wp-2", time.Hour, nil)},
		workerList{machines: []machine{{index: 0}, {index: 1}}, lastOperation: down})
	if f.size() != 2 || len(f.orphanedNodes) != 1 {
		t.Errorf("%d machines, %d strays", f.size(), len(f.orphanedNodes))
	}
	c := &clusterv1.KsctlCluster{}
	c.Status.Facts = &clusterv1.ClusterFacts{Pools: []clusterv1.NodePool{{Role: workerRole, Count: 3}}}
	status := &clusterv1.KsctlAutoScalerStatus{Operation: down, Workers: 2}
	for what, x := range map[string]struct {
		taken      *int32
		says, want int32
	}{
		"first import":                  {says: 3, want: 3},
		"same import":                   {taken: ptr.To[int32](3), says: 3, want: 2},
		"new import with more workers":  {taken: ptr.To[int32](3), says: 5, want: 5},
		"new import with fewer workers": {taken: ptr.To[int32](3), says: 1, want: 2},
	} {
		c.Status.Facts.Pools[0].Count, status.ImportedWorkers = x.says, x.taken
		if l := newWorkerList(session.Report{KsctlAgent: true}, c, status,
			ended.Time); len(l.machines) != int(x.want) || l.knownWorkers != 2 {
			t.Errorf("%s: %d machines, %d of them known without the import, want %d", what, len(l.machines),
				l.knownWorkers, x.want)
		}
	}
}

func TestNodeIsMatchedByReportedName(t *testing.T) {
	f := newMachines(newWorkerNames("demo"), testPools, []*corev1.Node{node("ip-10-0-0-7.internal", time.Hour, nil)},
		workerList{complete: true, machines: []machine{{index: 0, size: "s-1", nodeName: "ip-10-0-0-7.internal"}}})
	if f.otherNodes != 0 || f.list[0].node == nil {
		t.Errorf("%+v", f)
	}
}

func TestValidatePools(t *testing.T) {
	for what, p := range map[string]clusterv1.WorkerPool{
		"a reserved label":    {Labels: map[string]string{"node-role.kubernetes.io/worker": ""}},
		"the pool label":      {Labels: map[string]string{clusterv1.PoolLabel: "other"}},
		"an invalid value":    {Labels: map[string]string{"a": "b c"}},
		"an invalid label":    {Labels: map[string]string{"a b": "c"}},
		"a taint that evicts": {Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}},
		"a taint, no effect":  {Taints: []corev1.Taint{{Key: "a"}}},
		"a reserved taint": {Taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready",
			Effect: corev1.TaintEffectNoSchedule}}},
	} {
		if validatePools([]clusterv1.WorkerPool{p}) == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	if validatePools([]clusterv1.WorkerPool{{Name: "a", NodeSize: "s-1"}, {Name: "b", NodeSize: "S-1"}}) == nil {
		t.Error("two pools of the same size are accepted")
	}
	if err := validatePools([]clusterv1.WorkerPool{{Labels: map[string]string{"example.com/team": "a"},
		Taints: []corev1.Taint{{Key: "only", Value: "a", Effect: corev1.TaintEffectNoSchedule}}}}); err != nil {
		t.Error(err)
	}
}

func TestNodeChanges(t *testing.T) {
	nodes := []*corev1.Node{node("demo-vm-wp-0", time.Hour, nil), node("demo-vm-wp-1", time.Hour, nil),
		node("demo-vm-wp-2", time.Hour, nil)}
	for _, n := range nodes {
		n.Annotations = map[string]string{scaleDownDisabledAnnotation: "true"}
		n.Spec.ProviderID = "k3s://" + n.Name
		n.Labels = map[string]string{clusterv1.PoolLabel: "small"}
	}
	changes := func(mode clusterv1.ScalingMode, sizes ...string) []nodeChange {
		mayDelete := func(*machine) bool { return mode == clusterv1.ScalingAuto }
		f := newMachines(newWorkerNames("demo"), testPools, nodes, completeList(sizes...))
		return nodeChanges(&f, testPools, mayDelete, nil)
	}
	if got := changes(clusterv1.ScalingAuto, "s-1", "s-1", "s-1"); len(got) != 1 ||
		got[0].node.Name != "demo-vm-wp-2" ||
		!maps.Equal(got[0].annotations, map[string]any{scaleDownDisabledAnnotation: nil}) {
		t.Errorf("the last worker may be deleted: %+v", got)
	}
	if got := changes(clusterv1.ScalingUpOnly, "s-1", "s-1", "s-1"); len(got) != 0 {
		t.Errorf("no worker may be deleted: %+v", got)
	}
	if got := changes(clusterv1.ScalingAuto, "s-1", "s-1", "s-1", "s-1"); len(got) != 0 {
		t.Errorf("the last worker has not joined: %+v", got)
	}
	if got := changes(clusterv1.ScalingAuto, "s-1", "s-1", "x-9"); len(got) != 0 {
		t.Errorf("the last worker is in no pool: %+v", got)
	}
}
