package nodegroup

import (
	"context"
	"crypto/x509"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/scaling/pki"
)

// Caller is the KsctlAutoScaler whose certificate a request came with.
func Caller(ctx context.Context) (types.NamespacedName, error) {
	leaf, err := certificateOf(ctx)
	if err != nil {
		return types.NamespacedName{}, err
	}
	key, err := pki.ClientOf(leaf)
	if err != nil {
		return types.NamespacedName{}, refuse(codes.PermissionDenied, "%v", err)
	}
	return key, nil
}

// certificateOf is the certificate that a request came with, verified.
func certificateOf(ctx context.Context) (*x509.Certificate, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return info.State.VerifiedChains[0][0], nil
		}
	}
	return nil, refuse(codes.Unauthenticated, "a client certificate is needed")
}
