package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Prefix of each path that is received at, as Flux has it.
	Prefix = "/hook/"
	// TokenKey of a Secret holds the token.
	TokenKey = "token"
	// MinTokenBytes keeps the token from being found out from the path, which
	// whoever may read the source sees.
	MinTokenBytes = 16
)

// Token is what a Secret holds, without the line end that files have; "" if
// that is shorter than [MinTokenBytes].
func Token(secret *corev1.Secret) string {
	token := strings.TrimRight(string(secret.Data[TokenKey]), "\r\n")
	if len(token) < MinTokenBytes {
		return ""
	}
	return token
}

// Path is where pushes for a source are received. It stays while the token does,
// also on a cluster that is built anew.
func Path(source types.NamespacedName, token string) string {
	// Names hold no zero bytes, so that no two sources share what is summed.
	sum := sha256.Sum256([]byte("ksctl.com/webhook\x00" + source.Namespace + "\x00" + source.Name + "\x00" + token))
	return Prefix + hex.EncodeToString(sum[:])
}
