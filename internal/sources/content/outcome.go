package content

import (
	"errors"
	"fmt"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"github.com/ksctl/gitops/controllers/reconcile"
	"github.com/ksctl/gitops/internal/sources/sourceref"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/artifact"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/catalog"
	"github.com/ksctl/gitops/stacks/chart"
	"github.com/ksctl/gitops/stacks/sops"
)

// Condition reasons, in addition to those of the packages that resolve, fetch and decrypt.
const (
	// StackNotInCatalogReason: the catalog does not have the stack, or not in this version.
	StackNotInCatalogReason = "StackNotInCatalog"
	// InvalidStackReason: the stack, or the configuration of it in the spec, is invalid.
	InvalidStackReason = "InvalidStack"
	// RenderStoppedReason: the render exceeded a limit and was stopped, or its process died.
	RenderStoppedReason = "RenderStopped"
	// ChartSecretNotFoundReason: a Secret with the access to a chart repository does not exist.
	ChartSecretNotFoundReason = "ChartSecretNotFound"
)

// ChartSecretError means that a Secret of spec.charts does not exist.
type ChartSecretError struct{ Repository, Namespace, Name string }

func (e *ChartSecretError) Error() string {
	return fmt.Sprintf("spec.charts: Secret %s/%s for the repository %s does not exist", e.Namespace, e.Name, e.Repository)
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
		return reconcile.Stalled{Err: err, Reason: StackNotInCatalogReason}
	case errors.As(err, &ociErr) && ociErr.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(ociErr.Reason)}
	case errors.As(err, &ociErr):
		return reconcile.Retry{Err: err, Reason: string(ociErr.Reason)}
	case !errors.As(err, &sourceErr):
		return reconcile.Retry{Err: err}
	case sourceErr.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(sourceErr.Reason)}
	case sourceErr.Reason == sourceref.NotReady:
		return reconcile.Waiting{On: err.Error(), Reason: string(sourceErr.Reason)}
	default:
		return reconcile.Retry{Err: err, Reason: string(sourceErr.Reason)}
	}
}

// RenderOutcome maps an error of Render to an outcome: Stalled if a user must fix something, Retry
// if another attempt may succeed.
func RenderOutcome(err error, revision string) reconcile.Outcome {
	var (
		chartErr    *chart.Error
		stopped     *stacks.StoppedError
		stackErr    *stacks.Error
		artifactErr *artifact.Error
		chartSecret *ChartSecretError
		keys        *KeysNotFoundError
		sopsErr     *sops.Error
	)
	switch {
	case errors.As(err, &keys):
		return reconcile.Retry{Err: err, Reason: KeysNotFoundReason, Revision: revision}
	case errors.As(err, &sopsErr) && sopsErr.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(sopsErr.Reason), Revision: revision}
	case errors.As(err, &sopsErr):
		return reconcile.Retry{Err: err, Reason: string(sopsErr.Reason), Revision: revision}
	case errors.As(err, &chartSecret):
		return reconcile.Retry{Err: err, Reason: ChartSecretNotFoundReason, Revision: revision}
	case errors.As(err, &chartErr) && chartErr.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(chartErr.Reason), Revision: revision}
	case errors.As(err, &chartErr):
		return reconcile.Retry{Err: err, Reason: string(chartErr.Reason), Revision: revision}
	case errors.As(err, &stopped):
		return reconcile.Retry{Err: err, Reason: RenderStoppedReason, Revision: revision}
	case errors.As(err, &stackErr):
		return reconcile.Stalled{Err: err, Reason: InvalidStackReason, Revision: revision}
	case errors.As(err, &artifactErr) && artifactErr.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(artifactErr.Reason), Revision: revision}
	case errors.As(err, &artifactErr):
		return reconcile.Retry{Err: err, Reason: fluxmeta.ArtifactFailedReason, Revision: revision}
	default:
		return reconcile.Retry{Err: err, Revision: revision}
	}
}
