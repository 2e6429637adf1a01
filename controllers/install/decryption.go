package install

import (
	"fmt"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/content"
)

// decryptionKeys reads the Secret of spec.decryption. It returns nil if spec.decryption is not set.
func (s *Steps) decryptionKeys(in *appsv1.KsctlInstall, read configReader) (*content.Keys, error) {
	if in.Spec.Decryption == nil {
		return nil, nil
	}
	name := in.Spec.Decryption.SecretRef.Name
	v, err := read("Secret", name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("spec.decryption: reading Secret %s/%s: %w", in.Namespace, name, err)
	case v.version == "":
		return nil, content.NewKeysNotFoundError(in.Namespace, name)
	}
	return content.NewKeys(v.data, s.SecretKey)
}
