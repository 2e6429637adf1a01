package remove

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/internal/golden"
)

func goldenRemark(name, message string, reason engine.Reason) engine.Remark {
	r := remark(name, message, 2)
	r.Reason = reason
	return r
}

// The status of a KsctlRemove after the rehearsal, and while objects go.
func TestGoldenRehearsal(t *testing.T) {
	var least, whole appsv1.KsctlRemoveStatus
	least.Removal = removal(&engine.Rehearsal{}, 1, "d", 0)
	progress(&least, nil, nil)
	golden.JSON(t, "rehearsal-least.json", &least)

	held := []engine.Remark{goldenRemark("b", "it has finalizers", engine.Finalizing),
		goldenRemark("c", "", engine.Pending)}
	kept := []engine.Remark{goldenRemark("d", "it was there before", engine.Adopted),
		goldenRemark("e", "spec.keep has it", engine.Kept)}
	steps := [][]engine.Remark{{goldenRemark("a", "", engine.Pending)}, append(held, kept...)}
	whole.Removal = removal(&engine.Rehearsal{Steps: steps, Kept: kept, Blockers: held}, 7, "0123456789abcdef", 5)
	whole.Removal.MadeAt = metav1.NewTime(time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC))
	whole.Removal.Dependents = []string{"KsctlInstall team/shop has to go first"}
	golden.Complete(t, whole.Removal)
	progress(&whole, held, whole.Removal.Kept)
	golden.Complete(t, whole.Remaining)
	golden.JSON(t, "rehearsal.json", &whole)
}
