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

// Reasons of conditions beside those of the packages that content comes from.
const (
	// StackNotInCatalogReason: the catalogue has no such stack, or not in that version.
	StackNotInCatalogReason = "StackNotInCatalog"
	// InvalidStackReason: the stack, or what is wanted of it, is wrong.
	InvalidStackReason = "InvalidStack"
	// RenderStoppedReason: the render was stopped at a bound, or its process died.
	RenderStoppedReason = "RenderStopped"
	// ChartSecretNotFoundReason: a Secret that says how to reach a repository is missing.
	ChartSecretNotFoundReason = "ChartSecretNotFound"
)

// ChartSecretError says that a Secret of spec.charts does not exist.
type ChartSecretError struct{ Repository, Namespace, Name string }

func (e *ChartSecretError) Error() string {
	return fmt.Sprintf("spec.charts: Secret %s/%s for the repository %s does not exist", e.Namespace, e.Name, e.Repository)
}

// SourceOutcome is that of an error of Artifact. It waits for the events of a
// source, and of its kind's definition.
func SourceOutcome(err error) reconcile.Outcome {
	var (
		absent   *catalog.Error
		registry *oci.Error
		src      *sourceref.Error
	)
	switch {
	case errors.As(err, &absent):
		return reconcile.Stalled{Err: err, Reason: StackNotInCatalogReason}
	case errors.As(err, &registry) && registry.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(registry.Reason)}
	case errors.As(err, &registry):
		return reconcile.Retry{Err: err, Reason: string(registry.Reason)}
	case !errors.As(err, &src):
		return reconcile.Retry{Err: err}
	case src.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(src.Reason)}
	case src.Reason == sourceref.NotReady:
		return reconcile.Waiting{On: err.Error(), Reason: string(src.Reason)}
	default:
		return reconcile.Retry{Err: err, Reason: string(src.Reason)}
	}
}

// RenderOutcome tells what of an error of Render a person must mend from what
// another try may.
func RenderOutcome(err error, revision string) reconcile.Outcome {
	var (
		fetch   *chart.Error
		stopped *stacks.StoppedError
		stack   *stacks.Error
		art     *artifact.Error
		missing *ChartSecretError
		keys    *KeysNotFoundError
		cipher  *sops.Error
	)
	switch {
	case errors.As(err, &keys):
		return reconcile.Retry{Err: err, Reason: KeysNotFoundReason, Revision: revision}
	case errors.As(err, &cipher) && cipher.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(cipher.Reason), Revision: revision}
	case errors.As(err, &cipher):
		return reconcile.Retry{Err: err, Reason: string(cipher.Reason), Revision: revision}
	case errors.As(err, &missing):
		return reconcile.Retry{Err: err, Reason: ChartSecretNotFoundReason, Revision: revision}
	case errors.As(err, &fetch) && fetch.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(fetch.Reason), Revision: revision}
	case errors.As(err, &fetch):
		return reconcile.Retry{Err: err, Reason: string(fetch.Reason), Revision: revision}
	case errors.As(err, &stopped):
		return reconcile.Retry{Err: err, Reason: RenderStoppedReason, Revision: revision}
	case errors.As(err, &stack):
		return reconcile.Stalled{Err: err, Reason: InvalidStackReason, Revision: revision}
	case errors.As(err, &art) && art.Terminal():
		return reconcile.Stalled{Err: err, Reason: string(art.Reason), Revision: revision}
	case errors.As(err, &art):
		return reconcile.Retry{Err: err, Reason: fluxmeta.ArtifactFailedReason, Revision: revision}
	default:
		return reconcile.Retry{Err: err, Revision: revision}
	}
}
