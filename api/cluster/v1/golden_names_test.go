package v1

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ksctl/gitops/internal/golden"
)

// Clusters, repositories and users rely on these values. A constant may be renamed, but its value
// must not change.
func TestGoldenNames(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		name  string
		value any
	}{
		{"PoolLabel", PoolLabel}, {"AcceptedCondition", AcceptedCondition},
		{"StateImportedCondition", StateImportedCondition}, {"ProviderServingCondition", ProviderServingCondition},
		{"AutoscalerAvailableCondition", AutoscalerAvailableCondition},
		{"AutoscalerHealthyCondition", AutoscalerHealthyCondition}, {"ProgressingCondition", ProgressingCondition},
		{"DegradedCondition", DegradedCondition},
		{"CloudLabel", CloudLabel}, {"RegionLabel", RegionLabel}, {"TypeLabel", TypeLabel},
		{"DistributionLabel", DistributionLabel}, {"ClusterLabel", ClusterLabel},
		{"ReachableCondition", ReachableCondition}, {"InUseCondition", InUseCondition},
		{"TemplateNode", TemplateNode}, {"TemplateCatalog", TemplateCatalog}, {"TemplateOverride", TemplateOverride},
		{"TemplateUnknown", TemplateUnknown},
		{"ScalingAuto", ScalingAuto}, {"ScalingUpOnly", ScalingUpOnly}, {"ScalingOff", ScalingOff},
		{"TailOrder", TailOrder}, {"AnyOrder", AnyOrder},
		{"OperationScaleUp", OperationScaleUp}, {"OperationScaleDown", OperationScaleDown},
		{"OperationRecount", OperationRecount}, {"OperationPending", OperationPending},
		{"OperationRunning", OperationRunning}, {"OperationSucceeded", OperationSucceeded},
		{"OperationFailed", OperationFailed},
	} {
		fmt.Fprintf(&out, "%s = %v\n", c.name, c.value)
	}
	golden.Equal(t, "names.txt", out.Bytes())
}
