// Package gitsecret reads the Secrets with credentials for Git repositories and proxies. Their keys
// are the same as in Flux.
package gitsecret

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/artifact/git"
)

// Condition reasons for a Secret that an object refers to.
const (
	// InvalidReason: the Secret lacks a key, or a value is unusable.
	InvalidReason = string(git.CredentialsInvalid)
)

// Keys of Secrets, as Flux names them.
const (
	// UsernameKey and PasswordKey hold a login. For SSH, PasswordKey holds the password of the
	// private key.
	UsernameKey = "username"
	PasswordKey = "password"
	// BearerTokenKey holds a bearer token, which is used instead of a login.
	BearerTokenKey = "bearerToken"
	// CAKey holds a certificate authority.
	CAKey = "ca.crt"
	// IdentityKey holds an SSH private key, KnownHostsKey the accepted host keys of servers.
	IdentityKey   = "identity"
	KnownHostsKey = "known_hosts"
	// AddressKey holds the URL of a proxy.
	AddressKey = "address"
)

// Error means that a Secret does not exist or is invalid. Its text contains names of keys, never
// their values.
type Error struct {
	// Reason is the condition reason.
	Reason string
	// Message describes the problem and the remedy.
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Terminal reports whether only a change of the Secret helps. Secrets are watched.
func (e *Error) Terminal() bool { return e.Reason == InvalidReason }

// NewNotFound returns the error for a Secret that does not exist.
func NewNotFound(namespace, name, field string) error {
	return &Error{appsv1.SecretNotFoundReason,
		fmt.Sprintf("Secret %s/%s does not exist: create it or correct %s", namespace, name, field)}
}

// NewInvalid returns the error for a Secret that lacks a key, or has an unusable value.
func NewInvalid(format string, args ...any) error {
	return &Error{InvalidReason, fmt.Sprintf(format, args...)}
}

// Reader gets a Secret that a field of a spec refers to. If it does not exist, the error is that of
// NewNotFound.
type Reader func(ctx context.Context, namespace, name, field string) (*corev1.Secret, error)

// Repository is a Git repository with references to its Secrets.
type Repository struct {
	// Namespace is the namespace of the Secrets.
	Namespace string
	// URL is the URL of the repository.
	URL string
	// SecretRef and ProxySecretRef refer to the Secrets with its credentials and its proxy; nil for
	// none.
	SecretRef, ProxySecretRef *fluxmeta.LocalObjectReference
	// Field is the field of the spec that contains the references, such as spec.git.
	Field string
}

// Access reads the credentials and the proxy of a repository.
func (read Reader) Access(ctx context.Context, r Repository) (git.Access, error) {
	var a git.Access
	if r.SecretRef != nil {
		field := r.Field + ".secretRef"
		secret, err := read(ctx, r.Namespace, r.SecretRef.Name, field)
		if err != nil {
			return a, err
		}
		u, err := url.Parse(r.URL)
		if err == nil && u.Scheme == "ssh" {
			a.Identity, a.IdentityPassword, a.KnownHosts = secret.Data[IdentityKey], TrimmedValue(secret, PasswordKey),
				secret.Data[KnownHostsKey]
			err = RequireKeys(secret, field, IdentityKey, KnownHostsKey)
		} else {
			a.Username, a.Password = TrimmedValue(secret, UsernameKey), TrimmedValue(secret, PasswordKey)
			a.BearerToken, a.CA = TrimmedValue(secret, BearerTokenKey), secret.Data[CAKey]
			err = requireHTTPSKeys(secret, field)
		}
		if err != nil {
			return a, err
		}
	}
	var err error
	if r.ProxySecretRef != nil {
		a.Proxy, err = read.Proxy(ctx, r.Namespace, r.ProxySecretRef.Name, r.Field+".proxySecretRef")
	}
	return a, err
}

// TrimmedValue returns a value without the line end that a file has.
func TrimmedValue(secret *corev1.Secret, key string) string {
	return strings.TrimRight(string(secret.Data[key]), "\r\n")
}

// RequireKeys returns an *Error if a Secret lacks one of the keys.
func RequireKeys(secret *corev1.Secret, field string, keys ...string) error {
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return NewInvalid("Secret %s/%s of %s has no %s: add the key", secret.Namespace, secret.Name, field, key)
		}
	}
	return nil
}

// requireHTTPSKeys returns an *Error if a Secret for HTTPS has no usable key, or only half of a
// login.
func requireHTTPSKeys(secret *corev1.Secret, field string) error {
	switch {
	case len(secret.Data[UsernameKey]) > 0 || len(secret.Data[PasswordKey]) > 0:
		return RequireKeys(secret, field, UsernameKey, PasswordKey)
	case len(secret.Data[BearerTokenKey]) > 0 || len(secret.Data[CAKey]) > 0:
		return nil
	}
	return NewInvalid("Secret %s/%s of %s has neither username and password, nor bearerToken, nor ca.crt: add the "+
		"keys that the server requires",
		secret.Namespace, secret.Name, field)
}

// Proxy reads the URL of a proxy, with its login, from a Secret.
func (read Reader) Proxy(ctx context.Context, namespace, name, field string) (*url.URL, error) {
	secret, err := read(ctx, namespace, name, field)
	if err == nil {
		err = RequireKeys(secret, field, AddressKey)
	}
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(TrimmedValue(secret, AddressKey))
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return nil, NewInvalid("Secret %s/%s of %s has an invalid %s: expected the URL of a proxy, such as "+
			"http://proxy.example.com:3128, https://… or socks5://…",
			namespace, name, field, AddressKey)
	}
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, User: u.User}
	if user := TrimmedValue(secret, UsernameKey); user != "" {
		u.User = url.UserPassword(user, TrimmedValue(secret, PasswordKey))
	}
	return u, nil
}
