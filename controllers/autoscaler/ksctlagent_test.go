package autoscaler

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	agentclient "github.com/ksctl/gitops/internal/agent/client"
)

// TestWhateverKsctlsOwnAgentDoes is TestWhateverIsAsked with an agent that does not say what there
// is, and forgets machines where it is asked to make fewer than there are.
func TestWhateverKsctlsOwnAgentDoes(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			w := newWorld(t, "s-1")
			w.plain, w.facts = true, -1
			w.labelled[0] = "small"
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
	case op.Kind != clusterv1.OperationScaleUp && n > 0:
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
	if w.facts >= 0 {
		w.facts = int32(len(w.sizes))
	}
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

// newPlain has an agent of ksctl's own, and so many workers that have joined.
func newPlain(t *testing.T, sizes ...string) *world {
	w := newWorld(t, sizes...)
	w.plain, w.facts = true, int32(len(sizes))
	for i, size := range sizes {
		w.labelled[i] = map[string]string{"s-1": "small", "l-1": "large"}[size]
	}
	w.step()
	return w
}

// failing is one of whose scale-up so many machines came, when it had failed.
func failing(t *testing.T, made int32) (*world, *plan) {
	w := newPlain(t, "s-1")
	p := w.step(increase("small", 2, w.now))
	w.carry(p.op, made, agentFailed)
	return w, w.step()
}

func TestAfterAFailureNothingIsMadeUntilItIsCleared(t *testing.T) {
	w, p := failing(t, 1)
	if p.doubt == nil || p.doubt.least != 1 || p.doubt.most != 3 || !strings.Contains(p.held, "there are between 1 and 3 workers") {
		t.Fatalf("doubt %+v, held %q", p.doubt, p.held)
	}
	if p = w.step(increase("large", 1, w.now)); p.op.State != clusterv1.OperationFailed || len(p.scaled) > 0 {
		t.Fatalf("begun %+v, granted %v", p.op, p.scaled)
	}
	w.now = w.now.Add(2 * time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationRecount || p.op.From != 3 || p.op.DesiredWorkers != 1 {
		t.Fatalf("%+v", p.op)
	}
	if got := w.pool("small"); got.Target != 1 || got.Backoff == nil || got.Backoff.Operation != clusterv1.OperationScaleUp || got.Backoff.Failures != 1 {
		t.Fatalf("it leaves the pool as it was: %+v", got)
	}
	w.carry(p.op, 1, agentSucceeded)
	if p = w.step(increase("large", 1, w.now)); p.held != "" || p.op.Kind != clusterv1.OperationScaleUp || p.op.DesiredWorkers != 2 {
		t.Fatalf("held %q, %+v", p.held, p.op)
	}
}

func TestWhatHasJoinedIsNeverCleared(t *testing.T) {
	for what, x := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"a node by another name": {func(w *world) {
			w.others = []*corev1.Node{node("ip-10-0-0-7.internal", 0, nil)}
			w.others[0].CreationTimestamp.Time = w.now
		}, "a node has joined since"},
		"names that are not known any more": {func(w *world) { w.joined[0] = false }, "worker 0, which is not of the operation"},
		"an import that has more":           {func(w *world) { w.facts = 7 }, "the imported state has more"},
		"mode Off":                          {func(w *world) { w.obj.Spec.Mode = clusterv1.ScalingOff }, "mode is Off"},
	} {
		t.Run(what, func(t *testing.T) {
			w, _ := failing(t, 2)
			w.now = w.now.Add(30 * time.Second)
			x.change(w)
			w.now = w.now.Add(time.Hour)
			if p := w.step(); p.op.Kind != clusterv1.OperationScaleUp || !strings.Contains(p.held, x.want) {
				t.Errorf("%+v, held %q", p.op, p.held)
			}
		})
	}
	w, _ := failing(t, 2)
	w.joined[1], w.joined[2] = true, true
	if p := w.step(); p.doubt != nil || p.op.Unsettled {
		t.Fatalf("all have joined: %+v", p.op)
	}
	w.joined[2] = false // long after, such as by kubectl delete node
	w.now = w.now.Add(time.Hour)
	if p := w.step(); p.op.Kind != clusterv1.OperationScaleUp || !p.waits {
		t.Errorf("%+v, held %q", p.op, p.held)
	}
}

func TestAnAgentThatMayBeAtWorkHasTime(t *testing.T) {
	w := newPlain(t, "s-1")
	p := w.step(increase("small", 2, w.now))
	w.carry(p.op, 0, agentFailed)
	w.word.code = CodeNoAnswer
	w.step()
	w.now = w.now.Add(9 * time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationScaleUp {
		t.Fatalf("after 9 of 10 minutes: %+v", p.op)
	}
	w.now = w.now.Add(time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationRecount {
		t.Fatalf("after 10 minutes: %+v", p.op)
	}
}

func TestAFailedDeletionIsSettledByNodes(t *testing.T) {
	w := newPlain(t, "s-1", "s-1")
	p := w.step(w.removeLast())
	w.carry(p.op, 0, agentFailed)
	if p = w.step(); p.doubt == nil || p.doubt.idle != 1 {
		t.Fatalf("%+v", p.doubt)
	}
	w.now = w.now.Add(2 * time.Minute)
	if p = w.step(); p.doubt != nil || p.op.Unsettled || p.held != "" {
		t.Fatalf("it is ready: %+v, held %q", p.doubt, p.held)
	}
	w = newPlain(t, "s-1", "s-1")
	p = w.step(w.removeLast())
	w.carry(p.op, 1, agentFailed)
	w.now = w.now.Add(2 * time.Minute)
	w.step()
	w.now = w.now.Add(2 * time.Minute)
	if p = w.step(); p.op.Kind != clusterv1.OperationRecount || p.op.From != 2 || p.op.DesiredWorkers != 1 {
		t.Fatalf("its node is gone: %+v", p.op)
	}
}

func TestWhatTheImportedStateHasIsNotDeleted(t *testing.T) {
	w := newPlain(t, "s-1", "s-1")
	w.step(increase("small", 1, w.now)) // it is known otherwise from here on
	w.carry(w.obj.Status.Operation, 1, agentSucceeded)
	w.joined[2] = true
	w.step()
	w.facts = 1
	if p := w.step(); p.held != "" || w.obj.Status.Workers != 3 {
		t.Fatalf("one of less is of before: held %q, %d workers", p.held, w.obj.Status.Workers)
	}
	w.facts = 6
	w.now = w.now.Add(time.Hour)
	if p := w.step(w.removeLast()); atWork(p.op) || !strings.Contains(p.held, "the imported state has 6 workers") || w.obj.Status.Workers != 3 {
		t.Fatalf("%+v, held %q, %d workers", p.op, p.held, w.obj.Status.Workers)
	}
	w.facts = 3
	if p := w.step(); p.held != "" {
		t.Fatalf("held %q", p.held)
	}
}

// TestSizesAreKnownWithoutTheCloud has nodes that say nothing of their size, or that of k3s.
func TestSizesAreKnownWithoutTheCloud(t *testing.T) {
	w := newPlain(t, "s-1")
	p := w.step(increase("small", 1, w.now), increase("large", 1, w.now))
	w.carry(p.op, 1, agentSucceeded)
	if p = w.step(); atWork(p.op) || !p.waits {
		t.Fatalf("another one before it has joined: %+v", p.op)
	}
	w.joined[1], w.instanceType = true, "k3s"
	w.step()
	if got := w.labelled[1]; got != "small" {
		t.Fatalf("labelled %q", got)
	}
	if p = w.step(); p.op.Pool != "large" || p.op.From != 2 {
		t.Fatalf("%+v", p.op)
	}
}

func TestKsctlsOwnAgentIsNotToldOfDeletionsLate(t *testing.T) {
	for what, x := range map[string]struct {
		op    *clusterv1.ScaleOperation
		begun bool
		want  string
		calls int
	}{
		"a deletion before a start of the controller": {operation("a", 3, 2), false, CodeNoAnswer, 0},
		"a deletion that could not be sent in time":   {operation("a", 3, 2), true, CodeFailed, 0},
		"a scale-up": {operation("a", 1, 2), false, "", 1},
	} {
		t.Run(what, func(t *testing.T) {
			f := &fakeAgent{err: &agentclient.NoWorkersError{}}
			talking(t, f, func(l *Links, q question, _ *int) {
				l.ask(testKey, q)
				x.op.StartedAt.Time = time.Now().Add(-2 * time.Minute)
				l.carry(testKey, x.op, x.begun)
				time.Sleep(time.Minute)
				synctest.Wait()
				said, _ := l.ask(testKey, q)
				f.set(func() {
					if said.word.id != "a" || said.word.code != x.want || len(f.scaled) != x.calls {
						t.Errorf("%+v after %d calls", said.word, len(f.scaled))
					}
				})
			})
		})
	}
}
