package remove

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/internal/golden"
)

func goldenRemark(name, message string, reason plan.Reason) engine.RemovalItem {
	r := testRemark(name, message, 2)
	r.Reason = reason
	return r
}

// TestGoldenRehearsal pins the status of a KsctlRemove after the rehearsal, and during the removal.
func TestGoldenRehearsal(t *testing.T) {
	var least, whole appsv1.KsctlRemoveStatus
	least.Removal = removalStatus(&engine.RemovalPreview{}, 1, "d", 0)
	reportProgress(&least, nil, nil)
	golden.JSON(t, "rehearsal-least.json", &least)

	blocked := []engine.RemovalItem{goldenRemark("b", "it has finalizers", plan.ReasonFinalizers),
		goldenRemark("c", "", plan.ReasonPending)}
	kept := []engine.RemovalItem{goldenRemark("d", "it was there before", plan.ReasonAdopted),
		goldenRemark("e", "spec.keep has it", plan.ReasonKept)}
	steps := [][]engine.RemovalItem{{goldenRemark("a", "", plan.ReasonPending)}, append(blocked, kept...)}
	whole.Removal = removalStatus(&engine.RemovalPreview{Steps: steps, Kept: kept, Blockers: blocked}, 7,
		"0123456789abcdef", 5)
	whole.Removal.MadeAt = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	whole.Removal.Dependents = []string{"KsctlInstall team/shop has to go first"}
	golden.Complete(t, whole.Removal)
	reportProgress(&whole, blocked, whole.Removal.Kept)
	golden.Complete(t, whole.Remaining)
	golden.JSON(t, "rehearsal.json", &whole)
}
