package content

import (
	"errors"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/chart"
	"github.com/ksctl/gitops/stacks/sops"
)

// NewChartSecretError returns the error for a Secret of spec.charts that does not exist.
func NewChartSecretError(repository, namespace, name string) error {
	return reconcile.NewTransientError(appsv1.ChartSecretNotFoundReason,
		"spec.charts: Secret %s/%s for the repository %s does not exist", namespace, name, repository)
}

// SourceOutcome maps an error of Artifact to an outcome. The caller watches the source and the
// CustomResourceDefinition of its kind.
func SourceOutcome(err error) reconcile.Outcome {
	var (
		notInCatalog *catalog.NotFoundError
		ociErr       *oci.Error
		sourceErr    *sourceref.Error
	)
	switch {
	case errors.As(err, &notInCatalog):
		return reconcile.FailureOutcome(err, appsv1.StackNotInCatalogReason, true, "")
	case errors.As(err, &ociErr):
		return reconcile.FailureOutcome(err, string(ociErr.Reason), ociErr.Terminal(), "")
	case !errors.As(err, &sourceErr):
		return reconcile.Retry{Err: err}
	case sourceErr.Reason == sourceref.NotReady:
		return reconcile.Waiting{On: err.Error(), For: []appsv1.WaitReference{sourceErr.On},
			Reason: string(sourceErr.Reason)}
	}
	return reconcile.FailureOutcome(err, string(sourceErr.Reason), sourceErr.Terminal(), "")
}

// RenderOutcome maps an error of Render to an outcome: that of a *reconcile.StepError, Stalled if a
// user must fix something, or Retry if another attempt may succeed.
func RenderOutcome(err error, revision string) reconcile.Outcome {
	var (
		step        *reconcile.StepError
		sopsErr     *sops.Error
		chartErr    *chart.Error
		stopped     *stacks.StoppedError
		stackErr    *stacks.Error
		artifactErr *artifact.Error
	)
	switch {
	case errors.As(err, &step):
		return reconcile.OutcomeOf(err, revision)
	case errors.As(err, &sopsErr):
		return reconcile.FailureOutcome(err, string(sopsErr.Reason), sopsErr.Terminal(), revision)
	case errors.As(err, &chartErr):
		return reconcile.FailureOutcome(err, string(chartErr.Reason), chartErr.Terminal(), revision)
	case errors.As(err, &stopped):
		return reconcile.FailureOutcome(err, appsv1.RenderStoppedReason, false, revision)
	case errors.As(err, &stackErr):
		return reconcile.FailureOutcome(err, appsv1.InvalidStackReason, true, revision)
	case errors.As(err, &artifactErr) && artifactErr.Terminal():
		return reconcile.FailureOutcome(err, string(artifactErr.Reason), true, revision)
	case errors.As(err, &artifactErr):
		return reconcile.FailureOutcome(err, fluxmeta.ArtifactFailedReason, false, revision)
	}
	return reconcile.FailureOutcome(err, "", false, revision)
}
