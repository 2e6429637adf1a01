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

// ServiceAccountNotFoundReason says that the account whose pull secrets are asked for
// does not exist.
const ServiceAccountNotFoundReason = "ServiceAccountNotFound"

// Keys of Secrets, as Flux names them.
const (
	certificateKey = "tls.crt"
	privateKeyKey  = "tls.key"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get

// ociSecrets are the names of all Secrets that an OCI source refers to itself.
func ociSecrets(o *appsv1.OCISource) []string {
	names := []string{nameOf(o.SecretRef), nameOf(o.CertSecretRef), nameOf(o.ProxySecretRef)}
	if v := o.Verify; v != nil {
		names = append(names, nameOf(v.SecretRef), nameOf(v.TrustedRootSecretRef))
	}
	return names
}

// trustOCI is whose signatures a source asks for.
type trustOCI struct {
	provider appsv1.OCIVerificationProvider // empty: none
	verifier verify.Verifier
	// version of the Secret with what is trusted.
	version string
}

// content identifies what makes an artifact of a digest; empty when that is the
// digest alone.
func (t trustOCI) content(obj *appsv1.KsctlSource) string {
	o := obj.Spec.OCI
	recipe := struct {
		Ignore, MediaType, Provider, Trusted, URL string
		Identities                                []appsv1.OIDCIdentityMatch
	}{Ignore: obj.Spec.Ignore, MediaType: selectorOf(o).MediaType}
	if t.provider != "" {
		// Signatures stand beside the artifact, in its repository.
		recipe.Provider, recipe.Trusted, recipe.URL, recipe.Identities = string(t.provider), t.version, o.URL, o.Verify.MatchOIDCIdentity
	} else if recipe.Ignore == "" && recipe.MediaType == "" {
		return ""
	}
	return fingerprint(recipe)
}

// trustOfOCI reads what a source trusts.
func (s *Steps) trustOfOCI(ctx context.Context, namespace string, o *appsv1.OCISource) (t trustOCI, err error) {
	v := o.Verify
	if v == nil {
		return t, nil
	}
	t.provider = v.Provider
	name, field := nameOf(v.SecretRef), "spec.oci.verify.secretRef"
	keyless := v.Provider == appsv1.Cosign && v.SecretRef == nil
	if keyless {
		name, field = nameOf(v.TrustedRootSecretRef), "spec.oci.verify.trustedRootSecretRef"
	}
	secret, err := s.secret(ctx, namespace, name, field)
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
		if err = gitsecret.Needs(secret, field, verify.TrustedRootKey); err == nil {
			t.verifier, err = verify.NewCosignKeyless(secret.Data[verify.TrustedRootKey], identities(v))
		}
	}
	if e, ok := errors.AsType[*verify.Error](err); ok {
		e.Message = fmt.Sprintf("the Secret %s/%s of %s: %s", namespace, name, field, e.Message)
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

// accessOCI is how the registry of a source is reached.
func (s *Steps) accessOCI(ctx context.Context, namespace string, o *appsv1.OCISource) (a oci.Access, err error) {
	a.Insecure = o.Insecure
	if a.Keychain, err = s.keychain(ctx, namespace, o); err != nil {
		return a, err
	}
	if o.CertSecretRef != nil {
		if a.TLS, err = s.certificates(ctx, namespace, o.CertSecretRef.Name); err != nil {
			return a, err
		}
	}
	if o.ProxySecretRef != nil {
		a.Proxy, err = gitsecret.Reader(s.secret).Proxy(ctx, namespace, o.ProxySecretRef.Name, "spec.oci.proxySecretRef")
	}
	return a, err
}

// keychain holds the credentials of the Secret and of the account.
func (s *Steps) keychain(ctx context.Context, namespace string, o *appsv1.OCISource) (authn.Keychain, error) {
	type named struct{ name, field string }
	var wanted []named
	if o.SecretRef != nil {
		wanted = append(wanted, named{o.SecretRef.Name, "spec.oci.secretRef"})
	}
	if o.ServiceAccountName != "" {
		account := &corev1.ServiceAccount{}
		err := s.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.ServiceAccountName}, account)
		if apierrors.IsNotFound(err) {
			return nil, badSecret(ServiceAccountNotFoundReason, fmt.Sprintf("there is no ServiceAccount %s/%s: make it, or correct spec.oci.serviceAccountName", namespace, o.ServiceAccountName))
		}
		if err != nil {
			return nil, fmt.Errorf("reading the ServiceAccount %s/%s of spec.oci.serviceAccountName: %w", namespace, o.ServiceAccountName, err)
		}
		for _, ref := range account.ImagePullSecrets {
			wanted = append(wanted, named{ref.Name, "imagePullSecrets of the ServiceAccount " + o.ServiceAccountName})
		}
	}
	secrets := make([]corev1.Secret, 0, len(wanted))
	for _, w := range wanted {
		secret, err := s.secret(ctx, namespace, w.name, w.field)
		if err == nil {
			err = pullSecret(secret, w.field)
		}
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, *secret)
	}
	chain, err := kauth.NewFromPullSecrets(ctx, secrets)
	if err != nil { // its text may repeat what the Secret holds
		return nil, badSecret(SecretInvalidReason, fmt.Sprintf("a Secret of %s names a registry that is not well-formed", wanted[0].field))
	}
	return chain, nil
}

// pullSecret sees that a Secret holds credentials of registries.
func pullSecret(secret *corev1.Secret, field string) error {
	if secret.Type == corev1.SecretTypeDockerConfigJson {
		var parsed struct {
			Auths map[string]authn.AuthConfig `json:"auths"`
		}
		if json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &parsed) == nil && len(parsed.Auths) > 0 {
			return nil
		}
	}
	return badSecret(SecretInvalidReason, fmt.Sprintf("the Secret %s/%s of %s holds no credentials of registries: expected type %s, made with kubectl create secret docker-registry",
		secret.Namespace, secret.Name, field, corev1.SecretTypeDockerConfigJson))
}

// certificates are the authority of the registry and what to show to it.
func (s *Steps) certificates(ctx context.Context, namespace, name string) (*tls.Config, error) {
	const field = "spec.oci.certSecretRef"
	secret, err := s.secret(ctx, namespace, name, field)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := secret.Data[gitsecret.CAKey]; len(ca) > 0 {
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
		if !config.RootCAs.AppendCertsFromPEM(ca) {
			return nil, badSecret(SecretInvalidReason, fmt.Sprintf("the %s in the Secret %s/%s of %s holds no certificate in PEM form", gitsecret.CAKey, namespace, name, field))
		}
	}
	if len(secret.Data[certificateKey]) > 0 || len(secret.Data[privateKeyKey]) > 0 {
		pair, err := tls.X509KeyPair(secret.Data[certificateKey], secret.Data[privateKeyKey])
		if err != nil {
			return nil, badSecret(SecretInvalidReason, fmt.Sprintf("%s and %s in the Secret %s/%s of %s are no certificate with its key in PEM form", certificateKey, privateKeyKey, namespace, name, field))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if config.RootCAs == nil && config.Certificates == nil {
		return nil, badSecret(SecretInvalidReason, fmt.Sprintf("the Secret %s/%s of %s has neither %s, nor %s and %s: add what the registry needs", namespace, name, field, gitsecret.CAKey, certificateKey, privateKeyKey))
	}
	return config, nil
}
