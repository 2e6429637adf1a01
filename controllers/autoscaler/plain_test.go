package autoscaler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
)

// TestWhateverKsctlsOwnAgentDoes is TestWhateverIsAsked with an agent that does not say what there
// is, and forgets machines where it is asked to make fewer than there are.
func TestWhateverKsctlsOwnAgentDoes(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			w := newWorld(t, "s-1")
			w.plain, w.facts = true, -1
			exported := int32(1)
			for range 200 {
				w.plainChaos(r)
				switch r.IntN(20) { // exports are imported some time later, and their order is kept
				case 0:
					exported = int32(len(w.sizes))
				case 1:
					w.facts = exported
				}
			}
			w.plainCalm()
		})
	}
}

func (w *world) plainChaos(r *rand.Rand) {
	w.obj.Spec.Mode = []clusterv1.ScalingMode{"", "", "", clusterv1.ScalingUpOnly, clusterv1.ScalingOff}[r.IntN(5)]
	if n := r.IntN(3); n > 0 {
		p := w.step(increase([]string{"small", "large"}[r.IntN(2)], int32(n), w.now))
		w.ksctl(p.op, r)
	} else {
		p := w.step(w.removeLast())
		w.ksctl(p.op, r)
	}
	for i := range w.joined {
		w.joined[i] = w.joined[i] || r.IntN(3) == 0
	}
	w.now = w.now.Add(time.Duration(1+r.IntN(120)) * time.Second)
}

// ksctl is its agent at work: it is not done yet, or done, or it has failed in the midst.
func (w *world) ksctl(op *clusterv1.ScaleOperation, r *rand.Rand) {
	w.t.Helper()
	if !atWork(op) || w.word.id == op.ID || r.IntN(3) == 0 {
		return
	}
	n := int(op.DesiredWorkers) - len(w.sizes)
	switch {
	case op.Kind == clusterv1.OperationScaleUp && n < 0:
		w.t.Fatalf("it forgets %d of %d machines: %+v", -n, len(w.sizes), op)
	case op.Kind == clusterv1.OperationScaleDown && n > 0:
		w.t.Fatalf("it goes beyond the end of its array of %d: %+v", len(w.sizes), op)
	}
	if n = max(n, -n); r.IntN(4) == 0 {
		w.carry(op, int32(r.IntN(n+1)), agentFailed)
		w.word.code = []string{CodeFailed, CodeFailed, CodeNoAnswer}[r.IntN(3)]
		return
	}
	w.carry(op, int32(n), agentSucceeded)
}

// plainCalm lets everything come to its end, and looks at it.
func (w *world) plainCalm() {
	w.obj.Spec.Mode = clusterv1.ScalingAuto
	never := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		w.now = w.now.Add(2 * time.Hour)
		for i := range w.joined {
			w.joined[i] = true
		}
		if p := w.step(); atWork(p.op) {
			for w.word.id != p.op.ID {
				w.ksctl(p.op, never)
			}
		}
	}
	if have := w.obj.Status.Workers; have != int32(len(w.sizes)) {
		w.t.Fatalf("%d workers in the status, and there are %d", have, len(w.sizes))
	}
	for _, pool := range w.obj.Spec.Pools {
		if got := w.pool(pool.Name); got.Target < pool.MinSize || got.Target > pool.MaxSize || got.Change != 0 {
			w.t.Fatalf("pool %s: %+v", pool.Name, got)
		}
	}
}
