package server

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/internal/agent/provisioner"
)

// workersAt returns workers with these indexes.
func workersAt(indexes ...uint32) []provisioner.Worker {
	var out []provisioner.Worker
	for _, i := range indexes {
		out = append(out, provisioner.Worker{Index: i, Name: provisioner.Cluster{Name: "demo"}.WorkerName(i)})
	}
	return out
}

func TestNextStep(t *testing.T) {
	const create, remove = provisioner.Create, provisioner.Delete
	for name, c := range map[string]struct {
		from, desired uint32
		there         []provisioner.Worker
		verb          provisioner.Verb
		first, bound  uint32
		leaving       []uint32
		stray         bool
	}{
		"up":                       {2, 4, workersAt(0, 1), create, 2, 4, nil, false},
		"up from none":             {0, 2, nil, create, 0, 2, nil, false},
		"up, done":                 {2, 4, workersAt(0, 1, 2, 3), "", 0, 0, nil, false},
		"up into a gap":            {2, 3, workersAt(0, 2), create, 1, 2, nil, false},
		"up into a gap and beyond": {2, 4, workersAt(0, 2), create, 1, 4, nil, false},
		"up, with a gap far away":  {3, 4, workersAt(0, 1, 9), create, 2, 3, nil, false},
		"down":                     {4, 2, workersAt(0, 1, 2, 3), remove, 4, 2, []uint32{3, 2}, false},
		"down to none":             {2, 0, workersAt(0, 1), remove, 2, 0, []uint32{1, 0}, false},
		"down, with a gap":         {3, 2, workersAt(0, 2, 5), remove, 6, 5, []uint32{5}, false},
		"down, done":               {4, 2, workersAt(0, 1), "", 0, 0, nil, false},
		"up, too many workers":     {2, 3, workersAt(0, 1, 2, 3), "", 0, 0, nil, true},
		"down, too few workers":    {4, 2, workersAt(0), "", 0, 0, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := record{From: c.from, Desired: c.desired}.nextStep(c.there)
			if (err != nil) != c.stray || got.verb != c.verb || got.from != c.first || got.desired != c.bound {
				t.Errorf("%+v, %v", got, err)
			}
			var leaving []uint32
			for _, w := range got.leaving {
				leaving = append(leaving, w.Index)
			}
			if !slices.Equal(leaving, c.leaving) {
				t.Errorf("leaving %v, want %v", leaving, c.leaving)
			}
		})
	}
}

func TestMatchNodes(t *testing.T) {
	var nodes []corev1.Node
	for _, name := range []string{"demo-vm-wp-1", "demo-vm-wp-1-a1b2c", "demo-vm-wp-10", "demo-vm-wp-10-a1b2c",
		"demo-vm-wp-1-a1b2cd", "demo-vm-wp-1-A1b2c",
		"x-demo-vm-wp-1-a1b2c", "demo-vm-wp-1-a1b2c-d", "demo-vm-wp-11-a1b2c", "demo-vm-wp-1.a1b2c", "elsewhere"} {
		nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	names := func(w provisioner.Worker) (out []string) {
		for _, n := range matchNodes([]provisioner.Worker{w}, nodes) {
			out = append(out, n.node.Name)
		}
		return out
	}
	if got := names(provisioner.Worker{Name: "demo-vm-wp-1"}); !slices.Equal(got,
		[]string{"demo-vm-wp-1", "demo-vm-wp-1-a1b2c"}) {
		t.Errorf("nodes of worker 1: %v", got)
	}
	if got := names(provisioner.Worker{Name: "demo-vm-wp-10"}); !slices.Equal(got,
		[]string{"demo-vm-wp-10", "demo-vm-wp-10-a1b2c"}) {
		t.Errorf("nodes of worker 10: %v", got)
	}
	if got := names(provisioner.Worker{Name: "demo-vm-wp-7", Node: "elsewhere"}); !slices.Equal(got,
		[]string{"elsewhere"}) {
		t.Errorf("nodes of a worker with a node name: %v", got)
	}
	workers := []provisioner.Worker{{Name: "demo-vm-wp-1"}, {Name: "demo-vm-wp-11"}, {Name: "demo-vm-wp-2"}}
	setNodeNames(workers, nodes)
	if workers[0].Node != "" || workers[1].Node != "demo-vm-wp-11-a1b2c" || workers[2].Node != "" {
		t.Errorf("workers with node names %+v", workers)
	}
}
