package webhook

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// unreadable is a reader that fails to read one Secret.
type unreadable struct {
	client.Reader
	name string
}

func (u unreadable) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if key.Name == u.name {
		return errors.New("can't be read")
	}
	return u.Reader.Get(ctx, key, o, opts...)
}

// A source whose status has the path of another source does not prevent pushes to that one.
func TestUnreadableSecretDoesNotBlockOtherSources(t *testing.T) {
	b, secret := source("b", appsv1.GenericHMACWebhook)
	forged, theirs := source("a", appsv1.GenericHMACWebhook) // sorts first
	forged.Status.WebhookPath = b.Status.WebhookPath
	r := newReceiverTest(t, forged, theirs, b, secret)
	r.Secrets = unreadable{r.api, theirs.Name}
	body := pushTo("b", "refs/heads/main")
	if code, text := r.send(t, b.Status.WebhookPath, body, hmacOf(body)); code != http.StatusAccepted {
		t.Errorf("%d %s", code, text)
	}
	r.Secrets = unreadable{r.api, secret.Name}
	r.tokens.Clear()
	for range 100 {
		if code, _ := r.send(t, b.Status.WebhookPath, body, hmacOf(body)); code != http.StatusServiceUnavailable {
			t.Fatalf("no readable Secret: %d", code)
		}
	}
	if n := strings.Count(r.logged(), "can't be read"); n == 0 || n > 20 {
		t.Errorf("%d lines in the log of 100 requests", n)
	}
}

// A Secret that is not in the cache is read from the API server rarely, because this happens before
// the sender is authenticated.
func TestUncachedSecretIsReadOncePerTTL(t *testing.T) {
	for name, exists := range map[string]bool{"existing Secret": true, "missing Secret": false} {
		a, secret := source("a", appsv1.GenericWebhook)
		r := newReceiverTest(t, a)
		if exists {
			secret.UID = "" // simulates a Secret that is not in the cache
			if err := r.api.Create(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		want := map[bool]int{true: http.StatusAccepted, false: http.StatusNotFound}[exists]
		for range 10 {
			if code, _ := r.send(t, a.Status.WebhookPath, "",
				headers("Authorization", "Bearer "+secretToken)); code != want {
				t.Errorf("%s: %d, want %d", name, code, want)
			}
		}
		if n := r.secrets.Load(); n != 1 {
			t.Errorf("%s: %d reads for 10 requests", name, n)
		}
		r.Clock.(*clocktesting.FakeClock).Step(uncachedTokenTTL)
		r.send(t, a.Status.WebhookPath, "", headers())
		if n := r.secrets.Load(); n != 2 {
			t.Errorf("%s: %d reads a while later, want 2", name, n)
		}
	}
}
