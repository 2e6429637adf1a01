package reconcile

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// minStatusInterval is the minimum time between two status writes that only report progress.
const minStatusInterval = time.Second

// progressDelay returns how long a status write has to wait if it only reports progress, or what
// MayWait accepts; at most 0 if it is due or reports more.
func (r *Reconciler[T]) progressDelay(key types.NamespacedName, before, after T, requested bool) time.Duration {
	b, a := before.CommonStatus(), after.CommonStatus()
	progress := readyCondition(a).Status == metav1.ConditionUnknown && sameConditions(b, a) &&
		b.ObservedGeneration == a.ObservedGeneration
	if requested || !progress && (r.MayWait == nil || !r.MayWait(before, after)) {
		return 0
	}
	since := r.Clock.Since(r.recent.lastWrite(key))
	if since < 0 { // the clock moved backwards
		return 0
	}
	return minStatusInterval - since
}

// sameConditions reports whether the conditions differ at most in their messages.
func sameConditions(before, after *appsv1.CommonStatus) bool {
	return slices.EqualFunc(before.Conditions, after.Conditions, func(b, a metav1.Condition) bool {
		return b.Type == a.Type && b.Status == a.Status && b.Reason == a.Reason
	})
}
