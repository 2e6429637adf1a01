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

// Caller returns the KsctlAutoScaler that the client certificate of a request identifies. An error
// is a *RejectedError.
func Caller(ctx context.Context) (types.NamespacedName, error) {
	leaf, err := peerCertificate(ctx)
	if err != nil {
		return types.NamespacedName{}, err
	}
	key, err := pki.ClientOf(leaf)
	if err != nil {
		return types.NamespacedName{}, reject(codes.PermissionDenied, "%v", err)
	}
	return key, nil
}

// peerCertificate returns the verified client certificate of a request.
func peerCertificate(ctx context.Context) (*x509.Certificate, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return info.State.VerifiedChains[0][0], nil
		}
	}
	return nil, reject(codes.Unauthenticated, "client certificate required")
}
