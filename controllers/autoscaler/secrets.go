package autoscaler

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/controllers/engine"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// secretTTL is the time after which a cached Secret is read again, so that a lost permission to
// read it is noticed, too.
const secretTTL = 5 * time.Minute

// cachedSecret is a Secret and the time at which it was read.
type cachedSecret struct {
	version string
	at      time.Time
	secret  *corev1.Secret
}

// readSecret reads a Secret with the permissions of the object's service account. It uses the cache
// unless the Secret has changed or secretTTL has passed, because most reconciles are caused by
// nodes.
func (s *Steps) readSecret(ctx context.Context, localClient *engine.Client,
	key, name types.NamespacedName) (*corev1.Secret, bool, error) {
	version, now, cached := s.secretVersion(ctx, name), s.Clock.Now(), s.state.entry(key).secrets
	if m := cached[name.Name]; version != "" && m.version == version && now.Sub(m.at) < secretTTL {
		return m.secret, true, nil
	}
	var out corev1.Secret
	found, err := engine.GetInto(ctx, localClient, secretsResource, name.Namespace, name.Name, &out)
	if err != nil || !found {
		return &out, found, err
	}
	cached[name.Name] = cachedSecret{version: out.ResourceVersion, at: now, secret: &out}
	return &out, true, nil
}

// secretVersion returns the resourceVersion of a Secret in the client's cache; "" if it cannot be
// read.
func (s *Steps) secretVersion(ctx context.Context, name types.NamespacedName) string {
	meta := reconcile.PartialMetadata("", "Secret")
	if err := s.Client.Get(ctx, name, meta); err != nil {
		return ""
	}
	return meta.ResourceVersion
}
