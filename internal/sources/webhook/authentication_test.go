package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

const secretToken = "a-token-of-some-length"

func sign(token, body string) string {
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// The example is from GitHub's documentation, so the test does not rely on this package's own
// signatures.
func TestIsAuthenticAcceptsGitHubsExample(t *testing.T) {
	header := headers("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")
	if !isAuthentic(appsv1.GitHubWebhook, "It's a Secret to Everybody", header, []byte("Hello, World!")) {
		t.Error("the signature of the example is rejected")
	}
}

func TestIsAuthentic(t *testing.T) {
	const body = `{"ref":"refs/heads/main"}`
	good := sign(secretToken, body)
	for name, c := range map[string]struct {
		kind   appsv1.WebhookType
		header http.Header
		want   bool
	}{
		"github": {appsv1.GitHubWebhook, headers("X-Hub-Signature-256", "sha256="+good),
			true},
		"github in upper case": {appsv1.GitHubWebhook,
			headers("X-Hub-Signature-256", "sha256="+strings.ToUpper(good)), true},
		"github without the scheme": {appsv1.GitHubWebhook, headers("X-Hub-Signature-256", good), false},
		"github with SHA-1": {appsv1.GitHubWebhook, headers("X-Hub-Signature", "sha1="+good[:40]),
			false},
		"github with another token": {appsv1.GitHubWebhook,
			headers("X-Hub-Signature-256", "sha256="+sign("another-token-of-some-length", body)), false},
		"github over another body": {appsv1.GitHubWebhook,
			headers("X-Hub-Signature-256", "sha256="+sign(secretToken, body+" ")), false},
		"github cut short": {appsv1.GitHubWebhook, headers("X-Hub-Signature-256", "sha256="+good[:62]),
			false},
		"github with extra bytes": {appsv1.GitHubWebhook, headers("X-Hub-Signature-256", "sha256="+good+"00"),
			false},
		"github with invalid hex": {appsv1.GitHubWebhook,
			headers("X-Hub-Signature-256", "sha256="+good[:63]+"x"), false},
		"github with an empty signature":    {appsv1.GitHubWebhook, headers("X-Hub-Signature-256", "sha256="), false},
		"github without a header":           {appsv1.GitHubWebhook, headers(), false},
		"github with the header of another": {appsv1.GitHubWebhook, headers("X-Gitea-Signature", good), false},
		"gitea":                             {appsv1.GiteaWebhook, headers("X-Gitea-Signature", good), true},
		"gitea without a secret":            {appsv1.GiteaWebhook, headers("X-Gitea-Signature", ""), false},
		"generic-hmac":                      {appsv1.GenericHMACWebhook, headers("X-Signature", "sha256="+good), true},
		"generic-hmac with the token": {appsv1.GenericHMACWebhook,
			headers("Authorization", "Bearer "+secretToken), false},
		"gitlab":                        {appsv1.GitLabWebhook, headers("X-Gitlab-Token", secretToken), true},
		"gitlab with part of the token": {appsv1.GitLabWebhook, headers("X-Gitlab-Token", secretToken[:10]), false},
		"gitlab with extra bytes":       {appsv1.GitLabWebhook, headers("X-Gitlab-Token", secretToken+"x"), false},
		"gitlab without a token":        {appsv1.GitLabWebhook, headers(), false},
		"generic": {appsv1.GenericWebhook, headers("Authorization", "Bearer "+secretToken),
			true},
		"generic without the scheme": {appsv1.GenericWebhook, headers("Authorization", secretToken), false},
		"generic without a token":    {appsv1.GenericWebhook, headers("Authorization", "Bearer "), false},
		"no type": {"", headers("X-Hub-Signature-256", "sha256="+good, "X-Gitea-Signature", good, "X-Signature",
			"sha256="+good,
			"X-Gitlab-Token", secretToken, "Authorization", "Bearer "+secretToken), false},
	} {
		if got := isAuthentic(c.kind, secretToken, c.header, []byte(body)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A request that is signed with the empty token is rejected.
func TestIsAuthenticRejectsEmptyToken(t *testing.T) {
	for kind, header := range map[appsv1.WebhookType]http.Header{
		appsv1.GitHubWebhook:      headers("X-Hub-Signature-256", "sha256="+sign("", "x")),
		appsv1.GiteaWebhook:       headers("X-Gitea-Signature", sign("", "x")),
		appsv1.GenericHMACWebhook: headers("X-Signature", "sha256="+sign("", "x")),
		appsv1.GitLabWebhook:      headers("X-Gitlab-Token", ""),
		appsv1.GenericWebhook:     headers("Authorization", "Bearer "),
	} {
		if isAuthentic(kind, "", header, []byte("x")) {
			t.Errorf("%s accepts an empty token", kind)
		}
	}
}

func TestDeliveryID(t *testing.T) {
	type sent struct {
		kind   appsv1.WebhookType
		header http.Header
		body   string
	}
	for name, c := range map[string]struct {
		a, b sent
		same bool
	}{
		"signed, another delivery of the same body": {sent{appsv1.GitHubWebhook, headers("X-GitHub-Delivery", "1"),
			"x"}, sent{appsv1.GitHubWebhook, headers("X-GitHub-Delivery", "2"), "x"}, true},
		"signed, another body": {sent{appsv1.GitHubWebhook, headers(), "x"},
			sent{appsv1.GitHubWebhook, headers(), "y"}, false},
		"token, retry with the same idempotency key": {sent{appsv1.GitLabWebhook, headers("Idempotency-Key", "1"), "x"},
			sent{appsv1.GitLabWebhook, headers("Idempotency-Key", "1", "X-Gitlab-Event-UUID", "2"), "x"}, true},
		"token, another idempotency key": {sent{appsv1.GitLabWebhook, headers("Idempotency-Key", "1"), "x"},
			sent{appsv1.GitLabWebhook, headers("Idempotency-Key", "2"), "x"}, false},
		"token, same event UUID of an older GitLab": {sent{appsv1.GitLabWebhook, headers("X-Gitlab-Event-UUID", "1"),
			"x"}, sent{appsv1.GitLabWebhook, headers("X-Gitlab-Event-UUID", "1"), "x"}, true},
		"token, same event UUID and another body": {sent{appsv1.GitLabWebhook, headers("X-Gitlab-Event-UUID", "1"),
			"x"}, sent{appsv1.GitLabWebhook, headers("X-Gitlab-Event-UUID", "1"), "y"}, false},
	} {
		a, b := deliveryID(c.a.kind, c.a.header, []byte(c.a.body)), deliveryID(c.b.kind, c.b.header, []byte(c.b.body))
		if a == nil || b == nil || (*a == *b) != c.same {
			t.Errorf("%s: %x, %x", name, a, b)
		}
	}
	if deliveryID(appsv1.GenericWebhook, headers(), []byte("x")) != nil {
		t.Error("a generic request without an ID has a delivery ID")
	}
}

func TestPathAndToken(t *testing.T) {
	secret := func(token string) *corev1.Secret {
		return &corev1.Secret{Data: map[string][]byte{TokenKey: []byte(token)}}
	}
	if got := Token(secret(secretToken + "\r\n")); got != secretToken {
		t.Errorf("token %q", got)
	}
	if got := Token(secret("fifteen-bytes--\n")); got != "" {
		t.Errorf("a too short token %q is accepted", got)
	}
	paths := map[string]bool{}
	for _, key := range []types.NamespacedName{{Namespace: "a", Name: "bc"}, {Namespace: "ab", Name: "c"},
		{Namespace: "a", Name: "b"}} {
		for _, token := range []string{secretToken, "c" + secretToken} {
			path := Path(key, token)
			if path != Path(key, token) || len(path) != len(Prefix)+64 || strings.Contains(path, token) {
				t.Errorf("path %s", path)
			}
			paths[path] = true
		}
	}
	if len(paths) != 6 {
		t.Errorf("%d paths of 6", len(paths))
	}
}
