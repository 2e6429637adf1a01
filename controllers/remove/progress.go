package remove

import (
	"fmt"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/stacks"
)

// progress writes down how far a removal came.
func progress(st *appsv1.KsctlRemoveStatus, left []engine.Remark, kept []appsv1.RemovalObject) {
	there := int32(len(left) + len(kept))
	st.Removed, st.Left = ptr.To(max(0, st.Removal.Count-there)), ptr.To(there)
	st.Remaining = append(remarks(left), kept[:min(len(kept), maxRemarks)]...)
}

// planned says what a rehearsal found.
func planned(rm *appsv1.KsctlRemove) string {
	said := rm.Status.Removal
	out := fmt.Sprintf("%s to be removed in %s", count(int(said.Count)-len(said.Kept), "object"), count(len(said.Order), "step"))
	if n := len(said.Kept); n > 0 {
		out += fmt.Sprintf(", %d kept", n)
	}
	if n := len(said.Blockers); n > 0 {
		out += fmt.Sprintf("; %d would hold it: %s", n, said.Blockers[0].Message)
	}
	return out
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// maxNamed is how many objects a message names before it counts.
const maxNamed = 5

// going says what a removal that was begun waits for.
func going(rm *appsv1.KsctlRemove, in *appsv1.KsctlInstall, left []engine.Remark) string {
	out := fmt.Sprintf("%d of %s removed, %d to go", *rm.Status.Removed, count(int(rm.Status.Removal.Count), "object"), len(left))
	var on []string
	for _, r := range left {
		if r.Message != "" && r.Reason != engine.Kept && r.Reason != engine.Adopted {
			on = append(on, r.Message)
		}
	}
	if len(on) > maxNamed {
		on = append(on[:maxNamed], fmt.Sprintf("and %d more", len(on)-maxNamed))
	}
	if why := says(in); why != "" && len(on) == 0 {
		on = append(on, why)
	}
	if len(on) > 0 {
		out += ": " + strings.Join(on, "; ")
	}
	return out
}

// says is what an install that does not go on says of itself.
func says(in *appsv1.KsctlInstall) string {
	c := apimeta.FindStatusCondition(in.Status.Conditions, appsv1.ReadyCondition)
	if c == nil || c.Status == metav1.ConditionTrue || (c.Status == metav1.ConditionUnknown && c.Reason != "DependentsExist") {
		return ""
	}
	return fmt.Sprintf("KsctlInstall %s says: %s", in.Name, bounded(c.Message))
}

// done says what a removal came to.
func done(rm *appsv1.KsctlRemove, kept []appsv1.RemovalObject) string {
	out := count(int(*rm.Status.Removed), "object") + " removed, nothing is left"
	if rm.Status.Removal.Count == 0 {
		out = "there was nothing to remove"
	}
	if len(kept) == 0 {
		return out
	}
	var names []string
	for i := range min(len(kept), maxNamed) {
		name := kept[i].ID
		if ref, err := stacks.ParseID(name); err == nil {
			name = ref.String()
		}
		names = append(names, fmt.Sprintf("%s (%s)", name, kept[i].Message))
	}
	if more := len(kept) - maxNamed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s removed, %d kept: %s", count(int(*rm.Status.Removed), "object"), len(kept), strings.Join(names, ", "))
}
