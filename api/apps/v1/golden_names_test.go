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
		{"AdoptNever", AdoptNever}, {"AdoptUnowned", AdoptUnowned}, {"AdoptAlways", AdoptAlways},
		{"ChartProvenance", ChartProvenance}, {"ChartCosign", ChartCosign}, {"ChartNotation", ChartNotation},
		{"ReadyCondition", ReadyCondition}, {"ReconcilingCondition", ReconcilingCondition},
		{"StalledCondition", StalledCondition}, {"RequestedAtAnnotation", RequestedAtAnnotation},
		{"ApproveAnnotation", ApproveAnnotation}, {"AbandonAnnotation", AbandonAnnotation}, {"Finalizer", Finalizer},
		{"DriftCorrect", DriftCorrect}, {"DriftWarn", DriftWarn}, {"DriftIgnore", DriftIgnore},
		{"DeletionDelete", DeletionDelete}, {"DeletionOrphan", DeletionOrphan},
		{"DefaultMaxDeletes", DefaultMaxDeletes}, {"DefaultMaxDeletePercent", DefaultMaxDeletePercent},
		{"FewDeletes", FewDeletes},
		{"EntryIntended", EntryIntended}, {"EntryApplied", EntryApplied}, {"EntryAdopted", EntryAdopted},
		{"EntryDone", EntryDone}, {"EntryShared", EntryShared},
		{"CatalogKind", CatalogKind},
		{"CustomResourcesRefuse", CustomResourcesRefuse}, {"CustomResourcesDelete", CustomResourcesDelete},
		{"VerifyHEAD", VerifyHEAD}, {"VerifyTag", VerifyTag}, {"VerifyTagAndHEAD", VerifyTagAndHEAD},
		{"GitHubWebhook", GitHubWebhook}, {"GitLabWebhook", GitLabWebhook}, {"GiteaWebhook", GiteaWebhook},
		{"GenericWebhook", GenericWebhook}, {"GenericHMACWebhook", GenericHMACWebhook},
		{"GitHubStatus", GitHubStatus}, {"GitLabStatus", GitLabStatus}, {"GiteaStatus", GiteaStatus},
		{"Cosign", Cosign}, {"Notation", Notation},
		{"PublishedCondition", PublishedCondition}, {"PublishWhenReady", PublishWhenReady},
		{"PublishOnly", PublishOnly}, {"SecretsRefuse", SecretsRefuse}, {"SecretsOmit", SecretsOmit},
		{"SecretsInclude", SecretsInclude},
		{"FailureStop", FailureStop}, {"FailureContinue", FailureContinue},
		{"DefaultMaxConcurrent", DefaultMaxConcurrent}, {"FleetLabel", FleetLabel},
		{"ReleaseAnnotation", ReleaseAnnotation}, {"TurnAnnotation", TurnAnnotation}, {"ClusterReady", ClusterReady},
		{"ClusterUpdating", ClusterUpdating}, {"ClusterFailed", ClusterFailed},
		{"ClusterUnreachable", ClusterUnreachable}, {"ClusterWaiting", ClusterWaiting},
		{"ClusterRemoving", ClusterRemoving},
		{"ClusterValues", ClusterValues}, {"RotateAnnotation", RotateAnnotation},
		{"GenerateKeep", GenerateKeep}, {"GenerateRefuse", GenerateRefuse},
	} {
		fmt.Fprintf(&out, "%s = %v\n", c.name, c.value)
	}
	golden.Equal(t, "names.txt", out.Bytes())
}
