package nodegroup

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The identity of a Cluster Autoscaler is the URI ksctl://autoscaler/<namespace>/<name> of its
// certificate.
const (
	identityScheme = "ksctl"
	identityHost   = "autoscaler"
)

// Identity is the URI that the certificate of a KsctlAutoScaler's Cluster Autoscaler has among
// its subject alternative names.
func Identity(key types.NamespacedName) *url.URL {
	return &url.URL{Scheme: identityScheme, Host: identityHost, Path: "/" + key.Namespace + "/" + key.Name}
}

// Caller is the KsctlAutoScaler whose certificate a request came with.
func Caller(ctx context.Context) (types.NamespacedName, error) {
	leaf, err := certificateOf(ctx)
	if err != nil {
		return types.NamespacedName{}, err
	}
	key, err := identityOf(leaf)
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

// identityOf reads the identity of a certificate, which has just one.
func identityOf(leaf *x509.Certificate) (types.NamespacedName, error) {
	var found []types.NamespacedName
	for _, uri := range leaf.URIs {
		if uri.Scheme != identityScheme {
			continue
		}
		key, ok := keyOf(uri)
		if !ok {
			return types.NamespacedName{}, fmt.Errorf("the client certificate's URI %q is not %s://%s/<namespace>/<name>", brief(uri.String()), identityScheme, identityHost)
		}
		found = append(found, key)
	}
	if len(found) != 1 {
		return types.NamespacedName{}, fmt.Errorf("the client certificate has %d URIs %s://%s/<namespace>/<name>, and is to have one", len(found), identityScheme, identityHost)
	}
	return found[0], nil
}

func keyOf(uri *url.URL) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(strings.TrimPrefix(uri.Path, "/"), "/")
	key := types.NamespacedName{Namespace: namespace, Name: name}
	return key, ok && *Identity(key) == *uri && len(validation.IsDNS1123Label(namespace)) == 0 && len(validation.IsDNS1123Subdomain(name)) == 0
}
