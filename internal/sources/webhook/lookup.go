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
)

// at are the sources that may receive at a path, as the cache has them.
func (r *Receiver) at(ctx context.Context, path string) ([]appsv1.KsctlSource, error) {
	var found appsv1.KsctlSourceList
	if err := r.Client.List(ctx, &found, client.MatchingFields{byPath: path}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found.Items, func(s appsv1.KsctlSource) bool { return s.Spec.Webhook == nil }), nil
}

// find is the one of the candidates that receives at a path, and its token; nil and
// "" if there is none. It asks the API server only after a Secret changed.
func (r *Receiver) find(ctx context.Context, candidates []appsv1.KsctlSource, path string) (*appsv1.KsctlSource, string, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	var failure error
	for i := range candidates {
		source := &candidates[i]
		key := client.ObjectKeyFromObject(source)
		token, err := r.token(ctx, types.NamespacedName{Namespace: key.Namespace, Name: source.Spec.Webhook.SecretRef.Name})
		if err != nil { // another's Secret: a status can be written by hand
			failure = err
			continue
		}
		// A status is a hint: what counts is that the path is the token's.
		if token != "" && hmac.Equal([]byte(Path(key, token)), []byte(path)) {
			return source, token, nil
		}
	}
	return nil, "", failure
}

// askAgain is how long an answer about a Secret counts that is not in the cache.
const askAgain = 5 * time.Second

// known is a token as some version of its Secret has it, or had it at a time.
type known struct {
	version, token string
	at             time.Time
}

// token reads a Secret, if it is another one than when it was read last.
func (r *Receiver) token(ctx context.Context, key types.NamespacedName) (string, error) {
	meta := secretMetadata()
	err := client.IgnoreNotFound(r.Client.Get(ctx, key, meta)) // or it is not among those that are watched
	if err != nil {
		return "", err
	}
	version, now := string(meta.UID)+"/"+meta.ResourceVersion, r.Clock.Now()
	if v, ok := r.tokens.Get(key); ok {
		have := v.(known)
		if meta.UID == "" && now.Sub(have.at) < askAgain || meta.UID != "" && have.version == version {
			return have.token, nil
		}
	}
	secret := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.Secrets.Get(ctx, key, secret)); err != nil {
		return "", err
	}
	token := Token(secret)
	r.tokens.Add(key, known{version: string(secret.UID) + "/" + secret.ResourceVersion, token: token, at: now})
	return token, nil
}
