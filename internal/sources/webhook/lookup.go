package webhook

import (
	"context"
	"crypto/hmac"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// sourcesAt returns the sources in the cache whose status has the path.
func (r *Receiver) sourcesAt(ctx context.Context, path string) ([]appsv1.KsctlSource, error) {
	var found appsv1.KsctlSourceList
	if err := r.Client.List(ctx, &found, client.MatchingFields{webhookPathField: path}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found.Items, func(s appsv1.KsctlSource) bool { return s.Spec.Webhook == nil }), nil
}

// matchSource returns the candidate whose token gives the path, and the token; nil and "" if there
// is none. It reads from the API server only after a Secret has changed.
func (r *Receiver) matchSource(ctx context.Context, candidates []appsv1.KsctlSource,
	path string) (*appsv1.KsctlSource, string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var failure error
	for i := range candidates {
		source := &candidates[i]
		key := client.ObjectKeyFromObject(source)
		token, err := r.token(ctx,
			types.NamespacedName{Namespace: key.Namespace, Name: source.Spec.Webhook.SecretRef.Name})
		if err != nil { // possibly of another candidate: users can write a status by hand
			failure = err
			continue
		}
		// The path in the status is only a hint: the path must be the one that the token gives.
		if token != "" && hmac.Equal([]byte(Path(key, token)), []byte(path)) {
			return source, token, nil
		}
	}
	return nil, "", failure
}

// uncachedTokenTTL is how long a token is reused if its Secret is not in the cache.
const uncachedTokenTTL = 5 * time.Second

// cachedToken is a token with the version of its Secret, and the time of the read.
type cachedToken struct {
	version, token string
	readAt         time.Time
}

// token returns the token in a Secret. It reads the Secret only if it has changed since the last
// read.
func (r *Receiver) token(ctx context.Context, key types.NamespacedName) (string, error) {
	meta := reconcile.PartialMetadata("", "Secret")
	err := client.IgnoreNotFound(r.Client.Get(ctx, key, meta)) // the cache may not contain all Secrets
	if err != nil {
		return "", err
	}
	version, now := string(meta.UID)+"/"+meta.ResourceVersion, r.Clock.Now()
	if v, ok := r.tokens.Get(key); ok {
		cached := v.(cachedToken)
		if meta.UID == "" && now.Sub(cached.readAt) < uncachedTokenTTL || meta.UID != "" && cached.version == version {
			return cached.token, nil
		}
	}
	secret := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.Secrets.Get(ctx, key, secret)); err != nil {
		return "", err
	}
	token := Token(secret)
	r.tokens.Add(key, cachedToken{version: string(secret.UID) + "/" + secret.ResourceVersion, token: token,
		readAt: now})
	return token, nil
}
