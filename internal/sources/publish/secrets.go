package publish

import (
	"context"
	"errors"
	"fmt"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/sourceref"
)

// secretsKey is the metadata key that marks an artifact that may contain Secrets.
const secretsKey = "apps.ksctl.com/secrets"

// WithdrawSecrets is Withdraw if the published artifact may contain Secrets. It is for an owner
// that no longer publishes Secrets. An artifact without Secrets stays.
func (p *Publisher) WithdrawSecrets(ctx context.Context, owner client.Object, state *State) error {
	if err := p.checkServed(ctx); err != nil {
		if _, notServed := errors.AsType[*sourceref.Error](err); notServed {
			return nil // no object exists
		}
		return err
	}
	key := client.ObjectKeyFromObject(owner)
	have, err := p.read(ctx, key, state)
	if err != nil {
		return fmt.Errorf("reading ExternalArtifact %s: %w", key, err)
	}
	if have == nil || !metav1.IsControlledBy(have, owner) || !mayContainSecrets(have) {
		return nil
	}
	return p.Withdraw(ctx, owner, state)
}

// metadata returns the metadata of the artifact of a publication.
func metadata(o *Publication) map[string]string {
	mode := "None" // set explicitly: a merge patch does not remove the key
	if o.MayContainSecrets {
		mode = string(appsv1.SecretsInclude)
	}
	return map[string]string{originKey: o.Origin, secretsKey: mode}
}

// mayContainSecrets reports whether the artifact of an ExternalArtifact may contain Secrets.
func mayContainSecrets(have *sourcev1.ExternalArtifact) bool {
	return have.Status.Artifact != nil && have.Status.Artifact.Metadata[secretsKey] == string(appsv1.SecretsInclude)
}
