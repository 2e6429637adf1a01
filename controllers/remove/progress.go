package remove

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/stacks"
)

// reportProgress sets the progress of a removal in the status.
func reportProgress(st *appsv1.KsctlRemoveStatus, left []engine.RemovalItem, kept []appsv1.RemovalObject) {
	remaining := int32(len(left) + len(kept))
	st.Removed, st.Left = ptr.To(max(0, st.Removal.Count-remaining)), ptr.To(remaining)
	st.Remaining = append(removalObjects(left), kept[:min(len(kept), maxRemarks)]...)
}

// rehearsalMessage returns a summary of a rehearsal.
func rehearsalMessage(rm *appsv1.KsctlRemove) string {
	rehearsal := rm.Status.Removal
	out := fmt.Sprintf("%s to be removed in %s", plural(int(rehearsal.Count)-len(rehearsal.Kept), "object"),
		plural(len(rehearsal.Order), "step"))
	if n := len(rehearsal.Kept); n > 0 {
		out += fmt.Sprintf(", %d kept", n)
	}
	if n := len(rehearsal.Blockers); n > 0 {
		out += fmt.Sprintf("; %d blocked: %s", n, rehearsal.Blockers[0].Message)
	}
	return out
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// maxNamed is the number of objects that a message lists by name. It counts the others.
const maxNamed = 5

// progressMessage returns the progress of a started removal, and what it waits for.
func progressMessage(rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, left []engine.RemovalItem) string {
	out := fmt.Sprintf("%d of %s removed, %d remaining", *rm.Status.Removed,
		plural(int(rm.Status.Removal.Count), "object"), len(left))
	var messages []string
	for _, r := range left {
		if r.Message != "" && r.Reason != plan.ReasonKept && r.Reason != plan.ReasonAdopted {
			messages = append(messages, r.Message)
		}
	}
	messages = firstOf(messages, maxNamed)
	if message := installMessage(in); message != "" && len(messages) == 0 {
		messages = append(messages, message)
	}
	if len(messages) > 0 {
		out += ": " + strings.Join(messages, "; ")
	}
	return out
}

// installMessage returns the Ready message of an install that is not ready; "" if the install makes
// progress.
func installMessage(in *appsv1.KsctlInstall) string {
	c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	if c == nil || c.Status == metav1.ConditionTrue ||
		(c.Status == metav1.ConditionUnknown && c.Reason != "DependentsExist") {
		return ""
	}
	return fmt.Sprintf("KsctlInstall %s reports: %s", in.Name, reconcile.Truncate(c.Message, maxMessageBytes))
}

// doneMessage returns the result of a removal.
func doneMessage(rm *appsv1.KsctlRemove, kept []appsv1.RemovalObject) string {
	out := plural(int(*rm.Status.Removed), "object") + " removed, nothing is left"
	if rm.Status.Removal.Count == 0 {
		out = "there was nothing to remove"
	}
	if len(kept) == 0 {
		return out
	}
	var names []string
	for _, k := range kept {
		name := k.ID
		if ref, err := stacks.ParseID(name); err == nil {
			name = ref.String()
		}
		names = append(names, fmt.Sprintf("%s (%s)", name, k.Message))
	}
	return fmt.Sprintf("%s removed, %d kept: %s", plural(int(*rm.Status.Removed), "object"), len(kept),
		strings.Join(firstOf(names, maxNamed), ", "))
}

// firstOf returns the first items of a list for a message, followed by the number of the others.
func firstOf(list []string, limit int) []string {
	if len(list) > limit {
		return append(list[:limit], fmt.Sprintf("and %d more", len(list)-limit))
	}
	return list
}
