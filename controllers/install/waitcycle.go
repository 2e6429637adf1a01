package install

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	clusterv1 "github.com/ksctl/gitops/api/cluster/v1"
	"github.com/ksctl/gitops/controllers/install/handover"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// endlessWaits are the types of waits that last until the other object changes; so does the
// readiness of an install that an install applied. The others end by themselves, or after a user
// acts.
var endlessWaits = []appsv1.WaitType{appsv1.WaitDependsOn, appsv1.WaitPruning, appsv1.WaitTakeOver,
	appsv1.WaitDependents, appsv1.WaitRemoval, appsv1.WaitInUse}

// cycleDelay is how long a cycle has to last until it is reported: a status may be out of date for
// moments.
const cycleDelay = 2 * time.Second

// waitCycles has the wait cycle that the last reconcile of an install found, by install.
type waitCycles struct {
	mu     sync.Mutex
	cycles map[types.NamespacedName]waitCycle
}

// waitCycle is a cycle of waits, and the time at which it was found first.
type waitCycle struct {
	description string
	since       time.Time
}

// record records the cycle of an install, and returns the time at which it was found first. An
// empty description means that there is none.
func (w *waitCycles) record(install types.NamespacedName, description string, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if description == "" {
		delete(w.cycles, install)
		return now
	}
	if known := w.cycles[install]; known.description == description {
		return known.since
	}
	if w.cycles == nil {
		w.cycles = map[types.NamespacedName]waitCycle{}
	}
	w.cycles[install] = waitCycle{description, now}
	return now
}

// ReportWaitCycle changes the outcome of an install that waits for objects that wait for it. The
// statuses in the cache decide, so that each install of the cycle reports the same one.
func (s *Steps) ReportWaitCycle(ctx context.Context, in *appsv1.KsctlInstall, out reconcile.Outcome) reconcile.Outcome {
	var cycle []reconcile.WaitEdge
	waiting, isWaiting := out.(reconcile.Waiting)
	if isWaiting {
		self := reconcile.WaitNode{Kind: appsv1.KsctlInstallKind, Namespace: in.Namespace, Name: in.Name}
		cycle = reconcile.FindWaitCycle(self, func(n reconcile.WaitNode) []appsv1.WaitReference {
			if n == self {
				return endless(in, waiting.For)
			}
			return s.waitsOf(ctx, n)
		})
	}
	now, description := s.Clock.Now(), reconcile.DescribeWaitCycle(cycle)
	since := s.waitCycles.record(client.ObjectKeyFromObject(in), description, now)
	if description == "" {
		return out
	}
	if reportAt := since.Add(cycleDelay); now.Before(reportAt) {
		return reconcile.RequeueBy(out, reportAt)
	}
	waiting.Reason, waiting.TimedOut = appsv1.WaitCycleReason, true
	waiting.On = "wait cycle: " + description + "; " + waiting.On
	return waiting
}

// waitsOf returns the endless waits of an object according to its status.
func (s *Steps) waitsOf(ctx context.Context, n reconcile.WaitNode) []appsv1.WaitReference {
	var o reconcile.Object
	switch n.Kind {
	case appsv1.KsctlInstallKind:
		o = &appsv1.KsctlInstall{}
	case appsv1.KsctlRemoveKind:
		o = &appsv1.KsctlRemove{}
	case clusterv1.KsctlClusterKind:
		o = &clusterv1.KsctlCluster{}
	default:
		return nil
	}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: n.Namespace, Name: n.Name}, o,
		client.UnsafeDisableDeepCopy); err != nil {
		return nil // it does not exist, or its waits are found later
	}
	return endless(o, o.CommonStatus().WaitsFor)
}

// endless returns the endless waits of an object. An object that is being deleted no longer waits
// for its dependencies, although its status may not show that yet.
func endless(o client.Object, waits []appsv1.WaitReference) []appsv1.WaitReference {
	return slices.DeleteFunc(slices.Clone(waits), func(w appsv1.WaitReference) bool {
		child := w.Type == appsv1.WaitReadiness && w.Kind == appsv1.KsctlInstallKind
		return !child && !slices.Contains(endlessWaits, w.Type) || w.Type == appsv1.WaitDependsOn &&
			o.GetDeletionTimestamp() != nil
	})
}

// affectsWaitCycle reports whether a change of an install may begin or end a cycle of waits.
func affectsWaitCycle(before, after *appsv1.KsctlInstall) bool {
	inCycle := func(in *appsv1.KsctlInstall) bool {
		return handover.ReadyCondition(in).Reason == appsv1.WaitCycleReason
	}
	return !slices.Equal(endless(before, before.Status.WaitsFor), endless(after, after.Status.WaitsFor)) ||
		inCycle(before) != inCycle(after)
}

// waitsForValues returns the installs that an install waits for.
func waitsForValues(in *appsv1.KsctlInstall) (out []string) {
	for _, w := range endless(in, in.Status.WaitsFor) {
		if w.Kind == appsv1.KsctlInstallKind {
			out = append(out, reconcile.IndexValue(w.Kind, w.Namespace, w.Name))
		}
	}
	return out
}
