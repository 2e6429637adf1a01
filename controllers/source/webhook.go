package source

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/webhook"
)

// hook writes into the status where pushes are received. A path that can't be told
// any more is taken back, unless it may be told in a moment.
func (s *Steps) hook(ctx context.Context, obj *appsv1.KsctlSource) error {
	h := obj.Spec.Webhook
	if h == nil || !s.Webhooks {
		obj.Status.WebhookPath = ""
		return nil
	}
	const field = "spec.webhook.secretRef"
	secret, err := s.secret(ctx, obj.Namespace, h.SecretRef.Name, field)
	if err != nil {
		if _, gone := errors.AsType[*secretError](err); gone {
			obj.Status.WebhookPath = ""
		}
		return err
	}
	token := webhook.Token(secret)
	if token == "" {
		obj.Status.WebhookPath = ""
		return badSecret(SecretInvalidReason, fmt.Sprintf("the Secret %s/%s of %s has no %s of at least %d bytes: add one, as `openssl rand -hex 32` makes",
			secret.Namespace, secret.Name, field, webhook.TokenKey, webhook.MinTokenBytes))
	}
	obj.Status.WebhookPath = webhook.Path(client.ObjectKeyFromObject(obj), token)
	return nil
}

// hookless is said of a source that would receive pushes where nobody does.
func (s *Steps) hookless(obj *appsv1.KsctlSource) string {
	if obj.Spec.Webhook == nil || s.Webhooks {
		return ""
	}
	return "; spec.webhook has no effect: the controller runs without --webhook-addr"
}
