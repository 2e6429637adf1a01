package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Headers that authenticate a request.
const (
	gitHubSignature  = "X-Hub-Signature-256"
	gitLabToken      = "X-Gitlab-Token"
	giteaSignature   = "X-Gitea-Signature"
	genericSignature = "X-Signature"
	sha256Scheme     = "sha256="
	bearerScheme     = "Bearer "
)

// isAuthentic reports whether the sender of a request knows the token. It takes the same time for
// each type. It is false for an empty type or token, and takes the same time then.
func isAuthentic(kind appsv1.WebhookType, token string, header http.Header, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write(body) // never fails
	sum := mac.Sum(nil)
	var ok bool
	switch kind {
	case appsv1.GitHubWebhook:
		ok = equalSignature(header.Get(gitHubSignature), sha256Scheme, sum)
	case appsv1.GiteaWebhook:
		ok = equalSignature(header.Get(giteaSignature), "", sum)
	case appsv1.GenericHMACWebhook:
		ok = equalSignature(header.Get(genericSignature), sha256Scheme, sum)
	case appsv1.GitLabWebhook:
		ok = equalToken(header.Get(gitLabToken), "", token)
	case appsv1.GenericWebhook:
		ok = equalToken(header.Get("Authorization"), bearerScheme, token)
	}
	return ok && token != ""
}

// equalSignature compares a signature in hex with the expected sum.
func equalSignature(value, scheme string, sum []byte) bool {
	given, found := strings.CutPrefix(value, scheme)
	got, err := hex.DecodeString(given)
	return hmac.Equal(got, sum) && found && err == nil
}

// equalToken compares tokens by their digests, so that the time reveals nothing about the length.
func equalToken(value, scheme, token string) bool {
	given, found := strings.CutPrefix(value, scheme)
	got, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return hmac.Equal(got[:], want[:]) && found
}

// deliveryID returns an ID that is the same for repeated deliveries of a request: a digest of the
// signed body, or, if only a token was sent, of the body and the sender's ID of the event. It is
// nil if the sender has no such ID.
func deliveryID(kind appsv1.WebhookType, header http.Header, body []byte) *[sha256.Size]byte {
	var name string
	if kind == appsv1.GitLabWebhook || kind == appsv1.GenericWebhook { // they do not sign the body
		name = header.Get("Idempotency-Key")
		if name == "" && kind == appsv1.GitLabWebhook {
			name = header.Get("X-Gitlab-Event-UUID")
		}
		if name == "" {
			return nil
		}
	}
	sum := sha256.Sum256(append([]byte(name+"\x00"), body...))
	return &sum
}
