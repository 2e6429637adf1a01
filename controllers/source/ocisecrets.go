package source

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	kauth "github.com/google/go-containerregistry/pkg/authn/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/sources/gitsecret"
	"github.com/ksctl/gitops/stacks/artifact/oci"
	"github.com/ksctl/gitops/stacks/artifact/verify"
)

// Keys of Secrets, with the same names as in Flux.
const (
	certificateKey = "tls.crt"
	privateKeyKey  = "tls.key"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get

// ociTrust is the required signature of an OCI source.
type ociTrust struct {
	provider appsv1.OCIVerificationProvider // empty: no verification
	verifier verify.Verifier
	// version is the version of the Secret with the trusted keys.
	version string
}

// content identifies all inputs of an artifact besides the digest; empty if there are none.
func (t ociTrust) content(obj *appsv1.KsctlSource) string {
	o := obj.Spec.OCI
	recipe := struct {
		Ignore, MediaType, Provider, Trusted, URL string
		Identities                                []appsv1.OIDCIdentityMatch
	}{Ignore: obj.Spec.Ignore, MediaType: layerTypeOf(o)}
	if t.provider != "" {
		// The signatures are in the repository of the artifact, so the URL is an input, too.
		recipe.Provider, recipe.Trusted, recipe.URL, recipe.Identities = string(t.provider), t.version, o.URL,
			o.Verify.MatchOIDCIdentity
	} else if recipe.Ignore == "" && recipe.MediaType == "" {
		return ""
	}
	return fingerprint(recipe)
}

// ociTrustOf reads the trusted keys of a source.
func (s *Steps) ociTrustOf(ctx context.Context, namespace string, o *appsv1.OCISource) (t ociTrust, err error) {
	v := o.Verify
	if v == nil {
		return t, nil
	}
	t.provider = v.Provider
	name, field := refName(v.SecretRef), "spec.oci.verify.secretRef"
	keyless := v.Provider == appsv1.Cosign && v.SecretRef == nil
	if keyless {
		name, field = refName(v.TrustedRootSecretRef), "spec.oci.verify.trustedRootSecretRef"
	}
	secret, err := s.readSecret(ctx, namespace, name, field)
	if err != nil {
		return t, err
	}
	t.version = string(secret.UID) + "/" + secret.ResourceVersion
	switch {
	case v.Provider == appsv1.Notation:
		t.verifier, err = verify.NewNotation(secret.Data, nil)
	case !keyless:
		t.verifier, err = verify.NewCosignKeys(secret.Data)
	default:
		if err = gitsecret.RequireKeys(secret, field, verify.TrustedRootKey); err == nil {
			t.verifier, err = verify.NewCosignKeyless(secret.Data[verify.TrustedRootKey], identities(v))
		}
	}
	if e, ok := errors.AsType[*verify.Error](err); ok {
		e.Message = fmt.Sprintf("Secret %s/%s of %s: %s", namespace, name, field, e.Message)
	}
	return t, err
}

func identities(v *appsv1.OCIVerification) []verify.Identity {
	out := make([]verify.Identity, len(v.MatchOIDCIdentity))
	for i, m := range v.MatchOIDCIdentity {
		out[i] = verify.Identity{Issuer: m.Issuer, Subject: m.Subject}
	}
	return out
}

// ociAccess returns the credentials, the TLS configuration and the proxy for the registry of a
// source.
func (s *Steps) ociAccess(ctx context.Context, namespace string, o *appsv1.OCISource) (a oci.Access, err error) {
	a.Insecure = o.Insecure
	if a.Keychain, err = s.keychain(ctx, namespace, o); err != nil {
		return a, err
	}
	if o.CertSecretRef != nil {
		if a.TLS, err = s.tlsConfig(ctx, namespace, o.CertSecretRef.Name); err != nil {
			return a, err
		}
	}
	if o.ProxySecretRef != nil {
		a.Proxy, err = gitsecret.Reader(s.readSecret).
			Proxy(ctx, namespace, o.ProxySecretRef.Name, "spec.oci.proxySecretRef")
	}
	return a, err
}

// keychain returns the credentials of the Secret and of the service account.
func (s *Steps) keychain(ctx context.Context, namespace string, o *appsv1.OCISource) (authn.Keychain, error) {
	type named struct{ name, field string }
	var refs []named
	if o.SecretRef != nil {
		refs = append(refs, named{o.SecretRef.Name, "spec.oci.secretRef"})
	}
	if o.ServiceAccountName != "" {
		account := &corev1.ServiceAccount{}
		err := s.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.ServiceAccountName}, account)
		if apierrors.IsNotFound(err) {
			return nil, &gitsecret.Error{Reason: appsv1.ServiceAccountNotFoundReason,
				Message: fmt.Sprintf("ServiceAccount %s/%s does not exist: create it, or correct "+
					"spec.oci.serviceAccountName", namespace, o.ServiceAccountName)}
		}
		if err != nil {
			return nil, fmt.Errorf("reading ServiceAccount %s/%s of spec.oci.serviceAccountName: %w", namespace,
				o.ServiceAccountName, err)
		}
		for _, ref := range account.ImagePullSecrets {
			refs = append(refs, named{ref.Name, "imagePullSecrets of the ServiceAccount " + o.ServiceAccountName})
		}
	}
	secrets := make([]corev1.Secret, 0, len(refs))
	for _, w := range refs {
		secret, err := s.readSecret(ctx, namespace, w.name, w.field)
		if err == nil {
			err = checkPullSecret(secret, w.field)
		}
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, *secret)
	}
	chain, err := kauth.NewFromPullSecrets(ctx, secrets)
	if err != nil { // the error is omitted because it may quote the Secret
		return nil, gitsecret.NewInvalid("a Secret of %s contains an invalid name of a registry", refs[0].field)
	}
	return chain, nil
}

// checkPullSecret returns an error if a Secret contains no registry credentials.
func checkPullSecret(secret *corev1.Secret, field string) error {
	if secret.Type == corev1.SecretTypeDockerConfigJson {
		var parsed struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		if json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &parsed) == nil && len(parsed.Auths) > 0 {
			return nil
		}
	}
	return gitsecret.NewInvalid("Secret %s/%s of %s contains no registry credentials: expected type %s, create it "+
		"with kubectl create secret docker-registry",
		secret.Namespace, secret.Name, field, corev1.SecretTypeDockerConfigJson)
}

// tlsConfig returns the CA certificates for the registry and the client certificate.
func (s *Steps) tlsConfig(ctx context.Context, namespace, name string) (*tls.Config, error) {
	const field = "spec.oci.certSecretRef"
	secret, err := s.readSecret(ctx, namespace, name, field)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := secret.Data[gitsecret.CAKey]; len(ca) > 0 {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, gitsecret.NewInvalid("key %s of Secret %s/%s of %s contains no PEM certificate",
				gitsecret.CAKey, namespace, name, field)
		}
	}
	if len(secret.Data[certificateKey]) > 0 || len(secret.Data[privateKeyKey]) > 0 {
		pair, err := tls.X509KeyPair(secret.Data[certificateKey], secret.Data[privateKeyKey])
		if err != nil {
			return nil, gitsecret.NewInvalid("keys %s and %s of Secret %s/%s of %s are not a PEM certificate and its "+
				"private key", certificateKey, privateKeyKey, namespace, name, field)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if config.RootCAs == nil && config.Certificates == nil {
		return nil, gitsecret.NewInvalid("Secret %s/%s of %s has neither %s, nor %s and %s: add the keys that the "+
			"registry requires", namespace, name, field, gitsecret.CAKey, certificateKey, privateKeyKey)
	}
	return config, nil
}
