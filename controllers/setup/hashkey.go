package setup

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hashKeyName is the Secret that holds the key for hashes of secret content:
// such a hash in a status tells nothing to who has not the key.
const hashKeyName = "ksctl-gitops-hash-key"

const hashKeyField = "key"

// hashKey returns the key, making it the first time.
func hashKey(ctx context.Context, c client.Client, namespace string) ([]byte, error) {
	name := client.ObjectKey{Namespace: namespace, Name: hashKeyName}
	var secret corev1.Secret
	err := c.Get(ctx, name, &secret)
	if apierrors.IsNotFound(err) {
		key := make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		secret = corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hashKeyName},
			Data: map[string][]byte{hashKeyField: key}}
		err = c.Create(ctx, &secret)
		if apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, name, &secret) // another replica was first
		}
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s, which keys the hashes of secret content: %w", name, err)
	}
	if len(secret.Data[hashKeyField]) < 16 {
		return nil, fmt.Errorf("secret %s has no field %q of at least 16 bytes: delete it to have it made anew", name, hashKeyField)
	}
	return secret.Data[hashKeyField], nil
}
