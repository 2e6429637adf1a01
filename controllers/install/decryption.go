package install

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"

	"github.com/ksctl/gitops/internal/sources/content"
)

// decryptionKeys reads the Secret of spec.decryption with the install's service account, like
// valuesFor does with values. It returns nil if spec.decryption is not set.
func (s *Steps) decryptionKeys(ctx context.Context, o *owner, c dynamic.Interface, seen map[valuesKey]cachedValues) (*content.Keys, error) {
	in := o.req.Object
	if in.Spec.Decryption == nil {
		return nil, nil
	}
	key := valuesKey{"Secret", in.Spec.Decryption.SecretRef.Name}
	v, ok := seen[key]
	if !ok {
		var err error
		if v, err = s.readValues(ctx, o, c, key); err != nil {
			return nil, fmt.Errorf("spec.decryption: reading Secret %s/%s: %w", in.Namespace, key.name, err)
		}
		seen[key] = v
	}
	if v.version == "" {
		return nil, &content.KeysNotFoundError{Namespace: in.Namespace, Name: key.name}
	}
	return content.NewKeys(v.data, s.SecretKey)
}
