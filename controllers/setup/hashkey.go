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

// hashKeyName is the name of the Secret with the key for hashes of secret content. Without the key,
// such a hash in a status reveals nothing about the content.
const hashKeyName = "ksctl-gitops-hash-key"

const hashKeyField = "key"

// hashKey returns the key. It creates the Secret if it does not exist.
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
			err = c.Get(ctx, name, &secret) // another replica created it first
		}
	}
	if err != nil {
		return nil, fmt.Errorf("getting or creating the hash key in Secret %s: %w", name, err)
	}
	if len(secret.Data[hashKeyField]) < 16 {
		return nil, fmt.Errorf("the hash key in Secret %s: field %q has less than 16 bytes: delete the Secret to "+
			"create a new key", name, hashKeyField)
	}
	return secret.Data[hashKeyField], nil
}
