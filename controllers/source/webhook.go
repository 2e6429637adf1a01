package source

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/internal/sources/webhook"
)

// updateWebhookPath sets the path of the webhook in the status. If the Secret is invalid it removes
// the path; after a transient error it keeps the path.
func (s *Steps) updateWebhookPath(ctx context.Context, obj *appsv1.KsctlSource) error {
	h := obj.Spec.Webhook
	if h == nil || !s.Webhooks {
		obj.Status.WebhookPath = ""
		return nil
	}
	const field = "spec.webhook.secretRef"
	secret, err := s.readSecret(ctx, obj.Namespace, h.SecretRef.Name, field)
	if err != nil {
		if _, invalid := errors.AsType[*gitsecret.Error](err); invalid {
			obj.Status.WebhookPath = ""
		}
		return err
	}
	token := webhook.Token(secret)
	if token == "" {
		obj.Status.WebhookPath = ""
		return gitsecret.NewInvalid("Secret %s/%s of %s has no %s with at least %d bytes: add one, for example with "+
			"`openssl rand -hex 32`",
			secret.Namespace, secret.Name, field, webhook.TokenKey, webhook.MinTokenBytes)
	}
	obj.Status.WebhookPath = webhook.Path(client.ObjectKeyFromObject(obj), token)
	return nil
}

// webhookWarning returns a warning if the source has a webhook, but the controller does not receive
// requests.
func (s *Steps) webhookWarning(obj *appsv1.KsctlSource) string {
	if obj.Spec.Webhook == nil || s.Webhooks {
		return ""
	}
	return "; spec.webhook has no effect: the controller runs without --webhook-addr"
}
