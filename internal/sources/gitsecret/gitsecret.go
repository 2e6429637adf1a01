// Package gitsecret reads the Secrets that open Git repositories, for those kinds that name
// some. Their vocabulary is that of Flux.
package gitsecret

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	corev1 "k8s.io/api/core/v1"

	"github.com/ksctl/gitops/stacks/artifact/git"
)

// Reasons of a Secret that an object refers to.
const (
	// NotFoundReason: the Secret does not exist.
	NotFoundReason = "SecretNotFound"
	// InvalidReason: the Secret lacks a key, or holds what can't be used.
	InvalidReason = string(git.CredentialsInvalid)
)

// Keys of Secrets, as Flux names them.
const (
	// UsernameKey and PasswordKey are a login; the password may also be that of a private key.
	UsernameKey = "username"
	PasswordKey = "password"
	// BearerTokenKey is shown instead of a login.
	BearerTokenKey = "bearerToken"
	// CAKey is a certificate authority.
	CAKey = "ca.crt"
	// IdentityKey is a private key of SSH, KnownHostsKey the keys that servers may have.
	IdentityKey   = "identity"
	KnownHostsKey = "known_hosts"
	// AddressKey is that of a proxy.
	AddressKey = "address"
)

// Error is a Secret that is not there, or not as it has to be. Its text names keys,
// never what they hold.
type Error struct {
	// Reason is what is wrong, fit for a condition.
	Reason string
	// Message says what to do.
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Terminal is true when the Secret, which is watched, has to change.
func (e *Error) Terminal() bool { return e.Reason == InvalidReason }

// Missing is the error of a Secret that does not exist.
func Missing(namespace, name, field string) error {
	return &Error{NotFoundReason, fmt.Sprintf("there is no Secret %s/%s: make it, or correct %s", namespace, name, field)}
}

// Reader gets a Secret that a field of a spec names. Where there is none the error is that
// of Missing.
type Reader func(ctx context.Context, namespace, name, field string) (*corev1.Secret, error)

// Repository says which Secrets open a repository.
type Repository struct {
	// Namespace of the Secrets.
	Namespace string
	// URL of the repository.
	URL string
	// SecretRef and ProxySecretRef name them; nil: none.
	SecretRef, ProxySecretRef *fluxmeta.LocalObjectReference
	// Field of the spec that they stand in, as spec.git.
	Field string
}

// Access is what opens a repository.
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
			a.Identity, a.IdentityPassword, a.KnownHosts = secret.Data[IdentityKey], Line(secret, PasswordKey), secret.Data[KnownHostsKey]
			err = Needs(secret, field, IdentityKey, KnownHostsKey)
		} else {
			a.Username, a.Password = Line(secret, UsernameKey), Line(secret, PasswordKey)
			a.BearerToken, a.CA = Line(secret, BearerTokenKey), secret.Data[CAKey]
			err = webKeys(secret, field)
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

// Line is a value of one line, without the line end that files have.
func Line(secret *corev1.Secret, key string) string {
	return strings.TrimRight(string(secret.Data[key]), "\r\n")
}

// Needs sees that a Secret has some keys.
func Needs(secret *corev1.Secret, field string, keys ...string) error {
	for _, key := range keys {
		if len(secret.Data[key]) == 0 {
			return &Error{InvalidReason, fmt.Sprintf("the Secret %s/%s of %s has no %s: add it", secret.Namespace, secret.Name, field, key)}
		}
	}
	return nil
}

// webKeys sees that a Secret for HTTPS holds something to use, and no half login.
func webKeys(secret *corev1.Secret, field string) error {
	switch {
	case len(secret.Data[UsernameKey]) > 0 || len(secret.Data[PasswordKey]) > 0:
		return Needs(secret, field, UsernameKey, PasswordKey)
	case len(secret.Data[BearerTokenKey]) > 0 || len(secret.Data[CAKey]) > 0:
		return nil
	}
	return &Error{InvalidReason, fmt.Sprintf("the Secret %s/%s of %s has neither username and password, nor bearerToken, nor ca.crt: add what the server asks for",
		secret.Namespace, secret.Name, field)}
}

// Proxy is the one that a Secret describes.
func (read Reader) Proxy(ctx context.Context, namespace, name, field string) (*url.URL, error) {
	secret, err := read(ctx, namespace, name, field)
	if err == nil {
		err = Needs(secret, field, AddressKey)
	}
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(Line(secret, AddressKey))
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return nil, &Error{InvalidReason, fmt.Sprintf("the %s in the Secret %s/%s of %s is no proxy: expected a URL such as http://proxy.example.com:3128, https://… or socks5://…",
			AddressKey, namespace, name, field)}
	}
	u = &url.URL{Scheme: u.Scheme, Host: u.Host, User: u.User}
	if user := Line(secret, UsernameKey); user != "" {
		u.User = url.UserPassword(user, Line(secret, PasswordKey))
	}
	return u, nil
}
