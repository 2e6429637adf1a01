package reconcile

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// minStatusInterval is the least time between two writes that only show progress.
const minStatusInterval = time.Second

// tooSoon is how long a write that only shows progress has to wait.
func (r *Reconciler[T]) tooSoon(key types.NamespacedName, before, after T, requested bool) time.Duration {
	if requested || readyOf(after.CommonStatus()).Status != metav1.ConditionUnknown || !stand(before.CommonStatus(), after.CommonStatus()) ||
		before.CommonStatus().ObservedGeneration != after.CommonStatus().ObservedGeneration {
		return 0
	}
	since := r.Clock.Since(r.memory.lastWrite(key))
	if since < 0 { // the clock was set back
		return 0
	}
	return minStatusInterval - since
}

// stand is true when the conditions are as they were, but for what they say.
func stand(before, after *appsv1.CommonStatus) bool {
	return slices.EqualFunc(before.Conditions, after.Conditions, func(b, a metav1.Condition) bool {
		return b.Type == a.Type && b.Status == a.Status && b.Reason == a.Reason
	})
}
