package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// Headers that vouch for a request.
const (
	gitHubSignature  = "X-Hub-Signature-256"
	gitLabToken      = "X-Gitlab-Token"
	giteaSignature   = "X-Gitea-Signature"
	genericSignature = "X-Signature"
	sha256Scheme     = "sha256="
	bearerScheme     = "Bearer "
)

// authentic is true when whoever sent a request knows the token. It takes as long
// for any type, and for a type or token that is empty, which lets nobody through.
func authentic(kind appsv1.WebhookType, token string, header http.Header, body []byte) bool {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write(body) // never fails
	sum := mac.Sum(nil)
	var same bool
	switch kind {
	case appsv1.GitHubWebhook:
		same = signed(header.Get(gitHubSignature), sha256Scheme, sum)
	case appsv1.GiteaWebhook:
		same = signed(header.Get(giteaSignature), "", sum)
	case appsv1.GenericHMACWebhook:
		same = signed(header.Get(genericSignature), sha256Scheme, sum)
	case appsv1.GitLabWebhook:
		same = shown(header.Get(gitLabToken), "", token)
	case appsv1.GenericWebhook:
		same = shown(header.Get("Authorization"), bearerScheme, token)
	}
	return same && token != ""
}

// bound is true for the types whose senders sign what they send; the others show
// the token beside it.
func bound(kind appsv1.WebhookType) bool {
	return kind != appsv1.GitLabWebhook && kind != appsv1.GenericWebhook
}

// signed compares a signature in hex.
func signed(value, scheme string, sum []byte) bool {
	given, found := strings.CutPrefix(value, scheme)
	got, err := hex.DecodeString(given)
	return hmac.Equal(got, sum) && found && err == nil
}

// shown compares a token, by digests: the time tells nothing of its length.
func shown(value, scheme, token string) bool {
	given, found := strings.CutPrefix(value, scheme)
	got, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return hmac.Equal(got[:], want[:]) && found
}

// identity is what a request is known by when it comes again: what was signed; or,
// where only the token was shown, the sender's name for it. Nil if there is none.
func identity(kind appsv1.WebhookType, header http.Header, body []byte) *[sha256.Size]byte {
	var name string
	if !bound(kind) {
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
