package autoscaler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

func TestHosts(t *testing.T) {
	h := newHosts("demo")
	for name, want := range map[string]int32{
		"demo-vm-wp-0": 0, "demo-vm-wp-1-ab12c": 1, "demo-vm-wp-10-zzzzz": 10,
		"demo-vm-wp-01": -1, "demo-vm-wp-": -1, "demo-vm-wp-1-ab12": -1, "demo-vm-wp-1-ab12cd": -1, "demo-vm-wp-1-AB12C": -1,
		"demo-vm-cp-1": -1, "xdemo-vm-wp-1": -1, "demo2-vm-wp-1": -1, "demo-vm-wp-99999999999": -1, "demo-vm-wp-1000000": -1,
	} {
		got, ok := h.index(name)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if _, ok := newHosts("a.b").index("axb-vm-wp-1"); ok {
		t.Error("the name of a cluster is no pattern")
	}
}

// sized are the machines of an agent that knows them.
func sized(sizes ...string) listing {
	l := listing{exact: true}
	for i, size := range sizes {
		l.machines = append(l.machines, machine{index: int32(i), size: size})
	}
	return l
}

func node(name string, age time.Duration, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(time.Unix(1_800_000_000, 0).Add(-age))}}
}

func TestFleet(t *testing.T) {
	nodes := []*corev1.Node{
		node("demo-vm-cp-0", time.Hour, nil),
		node("demo-vm-wp-0", time.Hour, map[string]string{clusterv1.PoolLabel: "small"}),
		node("demo-vm-wp-1-aaaaa", time.Hour, nil), node("demo-vm-wp-1-bbbbb", time.Minute, map[string]string{corev1.LabelInstanceTypeStable: "l-1"}),
		node("demo-vm-wp-7-aaaaa", time.Hour, nil),
	}
	t.Run("of an agent that knows", func(t *testing.T) {
		f := newFleet(newHosts("demo"), testPools, nodes, sized("l-1", "s-1", "s-1"))
		if f.size() != 3 || f.others != 1 || len(f.strays) != 2 {
			t.Fatalf("%d machines, %d others, %d strays", f.size(), f.others, len(f.strays))
		}
		if m := f.machines[0]; m.pool != "large" { // the agent's word is more than a label
			t.Errorf("worker 0 is of pool %q", m.pool)
		}
		if m := f.machines[1]; m.node.Name != "demo-vm-wp-1-bbbbb" {
			t.Errorf("worker 1 is %s: the later one is the machine's", m.node.Name)
		}
		if f.machines[2].node != nil {
			t.Error("worker 2 has joined")
		}
	})
	t.Run("of one that does not", func(t *testing.T) {
		f := newFleet(newHosts("demo"), testPools, nodes, listing{machines: []machine{{index: 0}, {index: 1}}})
		if f.size() != 8 || f.machines[0].pool != "small" || f.machines[1].pool != "large" || f.machines[7].pool != "" || f.machines[7].node == nil {
			t.Fatalf("%d machines: %+v", f.size(), f.machines)
		}
	})
}

func TestWhatCantBeAskedIsKnownByTheLastOperation(t *testing.T) {
	ended := metav1.NewTime(time.Unix(1_800_000_000, 0))
	up := operation("up", 1, 3)
	up.State, up.EndedAt = clusterv1.OperationSucceeded, &ended
	f := newFleet(newHosts("demo"), testPools, []*corev1.Node{node("demo-vm-wp-0", time.Hour, map[string]string{clusterv1.PoolLabel: "small"})},
		listing{machines: []machine{{index: 0}, {index: 1}, {index: 2}}, last: up})
	if f.machines[1].pool != "small" || f.machines[2].pool != "small" {
		t.Errorf("%+v", f.machines)
	}
	down := operation("down", 3, 2)
	down.State, down.EndedAt = clusterv1.OperationSucceeded, &ended
	f = newFleet(newHosts("demo"), testPools, []*corev1.Node{node("demo-vm-wp-2", time.Hour, nil)}, listing{machines: []machine{{index: 0}, {index: 1}}, last: down})
	if f.size() != 2 || len(f.strays) != 1 {
		t.Errorf("%d machines, %d strays", f.size(), len(f.strays))
	}
	c := &clusterv1.KsctlCluster{}
	c.Status.Facts = &clusterv1.ClusterFacts{Pools: []clusterv1.NodePool{{Role: workerRole, Count: 3}}}
	status := &clusterv1.KsctlAutoScalerStatus{Operation: down, Workers: 2}
	for what, x := range map[string]struct {
		taken      *int32
		says, want int32
	}{
		"before anything else was known": {says: 3, want: 3},
		"as it was":                      {taken: ptr.To[int32](3), says: 3, want: 2},
		"another one, of more":           {taken: ptr.To[int32](3), says: 5, want: 5},
		"one of less":                    {taken: ptr.To[int32](3), says: 1, want: 2},
	} {
		c.Status.Facts.Pools[0].Count, status.ImportedWorkers = x.says, x.taken
		if l := listingOf(answer{plain: true}, c, status, ended.Time); len(l.machines) != int(x.want) || l.counted != 2 {
			t.Errorf("%s: %d machines of which %d are counted, want %d", what, len(l.machines), l.counted, x.want)
		}
	}
}

func TestANodeIsFoundByWhatTheAgentSays(t *testing.T) {
	f := newFleet(newHosts("demo"), testPools, []*corev1.Node{node("ip-10-0-0-7.internal", time.Hour, nil)}, listing{exact: true, machines: []machine{{index: 0, size: "s-1", nodeName: "ip-10-0-0-7.internal"}}})
	if f.others != 0 || f.machines[0].node == nil {
		t.Errorf("%+v", f)
	}
}

func TestValidate(t *testing.T) {
	for what, p := range map[string]clusterv1.WorkerPool{
		"a reserved label":     {Labels: map[string]string{"node-role.kubernetes.io/worker": ""}},
		"our own label":        {Labels: map[string]string{clusterv1.PoolLabel: "other"}},
		"a label's value":      {Labels: map[string]string{"a": "b c"}},
		"a label's name":       {Labels: map[string]string{"a b": "c"}},
		"a taint that evicts":  {Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}},
		"a taint of no effect": {Taints: []corev1.Taint{{Key: "a"}}},
		"a reserved taint":     {Taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}}},
	} {
		if validate([]clusterv1.WorkerPool{p}) == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if validate([]clusterv1.WorkerPool{{Name: "a", NodeSize: "s-1"}, {Name: "b", NodeSize: "S-1"}}) == nil {
		t.Error("two pools of one size are taken")
	}
	if err := validate([]clusterv1.WorkerPool{{Labels: map[string]string{"example.com/team": "a"}, Taints: []corev1.Taint{{Key: "only", Value: "a", Effect: corev1.TaintEffectNoSchedule}}}}); err != nil {
		t.Error(err)
	}
}

func TestMarks(t *testing.T) {
	nodes := []*corev1.Node{node("demo-vm-wp-0", time.Hour, nil), node("demo-vm-wp-1", time.Hour, nil), node("demo-vm-wp-2", time.Hour, nil)}
	for _, n := range nodes {
		n.Annotations = map[string]string{scaleDownDisabledAnnotation: "true"}
		n.Spec.ProviderID = "k3s://" + n.Name
		n.Labels = map[string]string{clusterv1.PoolLabel: "small"}
	}
	of := func(mode clusterv1.ScalingMode, sizes ...string) []mark {
		mayGo := func(*machine) bool { return mode == clusterv1.ScalingAuto }
		f := newFleet(newHosts("demo"), testPools, nodes, sized(sizes...))
		return marks(&f, testPools, mayGo, nil)
	}
	if got := of(clusterv1.ScalingAuto, "s-1", "s-1", "s-1"); len(got) != 1 || got[0].node.Name != "demo-vm-wp-2" || !got[0].change || got[0].disabled != nil {
		t.Errorf("the last one may go: %+v", got)
	}
	if got := of(clusterv1.ScalingUpOnly, "s-1", "s-1", "s-1"); len(got) != 0 {
		t.Errorf("none may go: %+v", got)
	}
	if got := of(clusterv1.ScalingAuto, "s-1", "s-1", "s-1", "s-1"); len(got) != 0 {
		t.Errorf("the last one has not joined: %+v", got)
	}
	if got := of(clusterv1.ScalingAuto, "s-1", "s-1", "x-9"); len(got) != 0 {
		t.Errorf("the last one is nobody's: %+v", got)
	}
}
