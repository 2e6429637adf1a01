package source

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// Reasons of a Secret that a source refers to.
const (
	// SecretNotFoundReason: the Secret does not exist.
	SecretNotFoundReason = "SecretNotFound"
	// SecretInvalidReason: the Secret lacks a key, or holds what can't be used.
	SecretInvalidReason = string(git.CredentialsInvalid)
)

// Keys of Secrets, as Flux names them.
const (
	usernameKey    = "username"
	passwordKey    = "password"
	bearerTokenKey = "bearerToken"
	caKey          = "ca.crt"
	identityKey    = "identity"
	knownHostsKey  = "known_hosts"
	addressKey     = "address"
)

// secretError is a Secret that is not there, or not as it has to be. Its text
// names keys, never what they hold.
type secretError struct {
	reason, message string
}

// Error implements error.
func (e *secretError) Error() string { return e.message }

// Terminal is true when the Secret, which is watched, has to change.
func (e *secretError) Terminal() bool { return e.reason == SecretInvalidReason }

// secretsOf are the names of all Secrets that a source refers to.
func secretsOf(obj *appsv1.KsctlSource) []string {
	var names []string
	if g := obj.Spec.Git; g != nil {
		names = append(names, nameOf(g.SecretRef), nameOf(g.ProxySecretRef))
		if g.Verify != nil {
			names = append(names, g.Verify.SecretRef.Name)
		}
	}
	if obj.Spec.OCI != nil {
		names = append(names, ociSecrets(obj.Spec.OCI)...)
	}
	if obj.Spec.Webhook != nil {
		names = append(names, obj.Spec.Webhook.SecretRef.Name)
	}
	if obj.Spec.CommitStatus != nil {
		names = append(names, obj.Spec.CommitStatus.SecretRef.Name)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

func nameOf(ref *fluxmeta.LocalObjectReference) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}

// secret reads a Secret that a field of the spec names.
func (s *Steps) secret(ctx context.Context, namespace, name, field string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.Secrets.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, &secretError{SecretNotFoundReason, fmt.Sprintf("there is no Secret %s/%s: make it, or correct %s", namespace, name, field)}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s/%s of %s: %w", namespace, name, field, err)
	}
	return secret, nil
}

// access is what opens the repository of a source.
func (s *Steps) access(ctx context.Context, namespace string, g *appsv1.GitSource) (git.Access, error) {
	var a git.Access
	if g.SecretRef != nil {
		secret, err := s.secret(ctx, namespace, g.SecretRef.Name, "spec.git.secretRef")
		if err != nil {
			return a, err
		}
		u, err := url.Parse(g.URL)
		if err == nil && u.Scheme == "ssh" {
			a.Identity, a.IdentityPassword, a.KnownHosts = secret.Data[identityKey], line(secret, passwordKey), secret.Data[knownHostsKey]
			err = needs(secret, "spec.git.secretRef", identityKey, knownHostsKey)
		} else {
			a.Username, a.Password = line(secret, usernameKey), line(secret, passwordKey)
			a.BearerToken, a.CA = line(secret, bearerTokenKey), secret.Data[caKey]
			err = webKeys(secret)
		}
		if err != nil {
			return a, err
		}
	}
	var err error
	if g.ProxySecretRef != nil {
		a.Proxy, err = s.proxy(ctx, namespace, g.ProxySecretRef.Name, "spec.git.proxySecretRef")
	}
	return a, err
}

// line is a value of one line, without the line end that files have.
func line(secret *corev1.Secret, key string) string {
	return strings.TrimRight(string(secret.Data[key]), "\r\n")
}

func needs(secret *corev1.Secret, field string, keys ...string) error {
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return &secretError{SecretInvalidReason, fmt.Sprintf("the Secret %s/%s of %s has no %s: add it", secret.Namespace, secret.Name, field, key)}
		}
	}
	return nil
}

// webKeys sees that a Secret for HTTPS holds something to use, and no half login.
func webKeys(secret *corev1.Secret) error {
	const field = "spec.git.secretRef"
	switch {
	case len(secret.Data[usernameKey]) > 0 || len(secret.Data[passwordKey]) > 0:
		return needs(secret, field, usernameKey, passwordKey)
	case len(secret.Data[bearerTokenKey]) > 0 || len(secret.Data[caKey]) > 0:
		return nil
	}
	return &secretError{SecretInvalidReason, fmt.Sprintf("the Secret %s/%s of %s has neither username and password, nor bearerToken, nor ca.crt: add what the server asks for",
		secret.Namespace, secret.Name, field)}
}

// proxy is the one that a Secret describes.
func (s *Steps) proxy(ctx context.Context, namespace, name, field string) (*url.URL, error) {
	secret, err := s.secret(ctx, namespace, name, field)
	if err == nil {
		err = needs(secret, field, addressKey)
	}
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(line(secret, addressKey))
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return nil, &secretError{SecretInvalidReason, fmt.Sprintf("the %s in the Secret %s/%s of %s is no proxy: expected a URL such as http://proxy.example.com:3128, https://… or socks5://…",
			addressKey, namespace, name, field)}
	}
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, User: u.User}
	if user := line(secret, usernameKey); user != "" {
		u.User = url.UserPassword(user, line(secret, passwordKey))
	}
	return u, nil
}
