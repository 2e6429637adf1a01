package source

import (
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/internal/sources/webhook"
)

// addWebhook adds a webhook to the source of the sourceTest.
func addWebhook(r *sourceTest) {
	r.obj.Spec.Webhook = &appsv1.SourceWebhook{Type: appsv1.GitHubWebhook}
	r.obj.Spec.Webhook.SecretRef.Name = "hook"
}

func TestWebhookPathInStatus(t *testing.T) {
	const token = "a-token-of-some-length"
	r := newSourceTest(t)
	r.Webhooks = true
	commit := r.commit(map[string]string{"a": "a"})
	addWebhook(r)
	if message := r.failed(appsv1.SecretNotFoundReason); !strings.Contains(message, "spec.webhook.secretRef") {
		t.Errorf("the error does not name the field: %s", message)
	}
	if a := r.obj.Status.Artifact; a == nil || commitOf(a.Revision) != commit {
		t.Errorf("no artifact without the Secret: %+v", a)
	}
	r.secret("hook", map[string]string{"token": token + "\n"})
	r.done()
	path := r.obj.Status.WebhookPath
	if path != webhook.Path(fleet, token) {
		t.Errorf("path %s", path)
	}
	r.secret("hook", map[string]string{"token": "another-token-of-some-length"})
	r.done()
	if next := r.obj.Status.WebhookPath; next == path || next == "" {
		t.Errorf("path %s with another token", next)
	}
	for _, data := range []map[string]string{{"token": "short"}, {"password": token}} {
		r.secret("hook", data)
		if message := r.stalledMessage(gitsecret.InvalidReason); !strings.Contains(message, "16 bytes") ||
			strings.Contains(message, "short") || r.obj.Status.WebhookPath != "" {
			t.Errorf("%s, path %q", message, r.obj.Status.WebhookPath)
		}
	}
	r.secret("hook", map[string]string{"token": token})
	r.done()
	r.obj.Spec.Webhook = nil
	if r.done(); r.obj.Status.WebhookPath != "" {
		t.Errorf("path %s without a webhook", r.obj.Status.WebhookPath)
	}
}

func TestWebhookWithoutReceiverIsReported(t *testing.T) {
	r := newSourceTest(t)
	r.commit(map[string]string{"a": "a"})
	addWebhook(r)
	first := r.done()
	if !strings.Contains(first.Message, "--webhook-addr") || r.obj.Status.WebhookPath != "" {
		t.Errorf("%s, path %q", first.Message, r.obj.Status.WebhookPath)
	}
	if again := r.done(); again != first {
		t.Errorf("the message changes: %+v, %+v", first, again)
	}
}

func TestWebhookSecretIsWatched(t *testing.T) {
	obj := &appsv1.KsctlSource{}
	obj.Spec.Webhook = &appsv1.SourceWebhook{}
	obj.Spec.Webhook.SecretRef.Name = "hook"
	if got := secretNames(obj); len(got) != 1 || got[0] != "hook" {
		t.Errorf("got %v", got)
	}
}
