package install

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"

	"github.com/ksctl/gitops/internal/sources/content"
)

// keysFor reads the Secret of spec.decryption as the install's account, as values are;
// nil: none is named.
func (s *Steps) keysFor(ctx context.Context, o *owner, c dynamic.Interface, seen map[valuesKey]cachedValues) (*content.Keys, error) {
	in := o.req.Object
	if in.Spec.Decryption == nil {
		return nil, nil
	}
	key := valuesKey{"Secret", in.Spec.Decryption.SecretRef.Name}
	v, ok := seen[key]
	if !ok {
		var err error
		if v, err = s.readValues(ctx, o, c, key); err != nil {
			return nil, fmt.Errorf("reading the Secret %s/%s of spec.decryption: %w", in.Namespace, key.name, err)
		}
		seen[key] = v
	}
	if v.version == "" {
		return nil, &content.KeysNotFoundError{Namespace: in.Namespace, Name: key.name}
	}
	return content.NewKeys(v.data, s.SecretKey)
}
