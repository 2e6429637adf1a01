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

// secretsKey is the metadata of an artifact that may hold Secrets.
const secretsKey = "apps.ksctl.com/secrets"

// Retract is Withdraw for what may hold Secrets, which an owner does not mean to publish
// any more. What holds none stays.
func (p *Publisher) Retract(ctx context.Context, owner client.Object, kept *Kept) error {
	var gone *sourceref.Error // with the kind everything of it went
	if err := p.served(ctx); errors.As(err, &gone) {
		return nil
	} else if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(owner)
	have, err := p.read(ctx, key, kept)
	if err != nil {
		return fmt.Errorf("reading ExternalArtifact %s: %w", key, err)
	}
	if have == nil || !metav1.IsControlledBy(have, owner) || !offersSecrets(have) {
		return nil
	}
	return p.Withdraw(ctx, owner, kept)
}

// metadata of what an offer makes.
func metadata(o *Offer) map[string]string {
	mode := "None" // said, too: a patch takes no key out
	if o.Secrets {
		mode = string(appsv1.SecretsInclude)
	}
	return map[string]string{originKey: o.Origin, secretsKey: mode}
}

// offersSecrets is true for what may hold Secrets.
func offersSecrets(have *sourcev1.ExternalArtifact) bool {
	return have.Status.Artifact != nil && have.Status.Artifact.Metadata[secretsKey] == string(appsv1.SecretsInclude)
}
