package reconcile

import (
	"slices"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// maxMessageBytes bounds the message of a condition; the API allows 32 KiB.
const maxMessageBytes = 4096

// maxWaits is the maximum number of waits in a status.
const maxWaits = 10

// setConditions sets the conditions of an outcome in the common status.
func setConditions(st *appsv1.CommonStatus, v outcomeEffects, generation int64, now metav1.Time) {
	message := Truncate(v.message, maxMessageBytes)
	changed := false
	set := func(kind, status, reason, message string) {
		if reason == "" {
			changed = apimeta.RemoveStatusCondition(&st.Conditions, kind) || changed
			return
		}
		changed = apimeta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: kind,
			Status: metav1.ConditionStatus(status), Reason: reason, Message: message, ObservedGeneration: generation,
			LastTransitionTime: now}) || changed
	}
	set(appsv1.ReadyCondition, v.ready, v.reason, message) // others quote it
	set(appsv1.ReconcilingCondition, "True", v.reconciling, message+v.next)
	stalled := ""
	if v.stalled {
		stalled = v.reason
	}
	set(appsv1.StalledCondition, "True", stalled, message)
	st.ObservedGeneration = generation
	if changed { // the waits alone cause no write
		st.WaitsFor = slices.Clone(v.waitsFor[:min(len(v.waitsFor), maxWaits)])
	}
}

func readyCondition(st *appsv1.CommonStatus) metav1.Condition {
	if c := apimeta.FindStatusCondition(st.Conditions, fluxmeta.ReadyCondition); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// QuotedMessage returns the message of the condition Ready for messages of other objects. Unlike
// that of Reconciling, it does not describe the next reconcile.
func QuotedMessage(conditions []metav1.Condition) string {
	if ready := apimeta.FindStatusCondition(conditions, fluxmeta.ReadyCondition); ready != nil {
		return ready.Message
	}
	return ""
}
