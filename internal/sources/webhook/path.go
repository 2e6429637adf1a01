package webhook

import (
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/sources/gitsecret"
)

const (
	// Prefix is the prefix of all webhook paths, the same as in Flux.
	Prefix = "/hook/"
	// TokenKey is the key of a Secret that holds the token.
	TokenKey = "token"
	// MinTokenBytes prevents guessing the token from the path, which everyone who may read the
	// source can see.
	MinTokenBytes = 16
)

// Token returns the token in a Secret, without the line end that a file has. It returns "" if the
// token is shorter than [MinTokenBytes].
func Token(secret *corev1.Secret) string {
	token := gitsecret.TrimmedValue(secret, TokenKey)
	if len(token) < MinTokenBytes {
		return ""
	}
	return token
}

// Path returns the webhook path of a source. It depends on the name and the token alone, so it also
// stays the same on a re-created cluster.
func Path(source types.NamespacedName, token string) string {
	// Names contain no zero bytes, so no two sources hash the same input.
	sum := sha256.Sum256([]byte("ksctl.com/webhook\x00" + source.Namespace + "\x00" + source.Name + "\x00" + token))
	return Prefix + hex.EncodeToString(sum[:])
}
