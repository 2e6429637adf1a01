package webhook

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/golden"
)

// TestGoldenPaths: users configure these paths in their Git servers. With other paths, pushes would
// be lost.
func TestGoldenPaths(t *testing.T) {
	fleet := types.NamespacedName{Namespace: "team", Name: "fleet"}
	golden.Complete(t, fleet)
	token := Token(&corev1.Secret{Data: map[string][]byte{"token": []byte("0123456789abcdef\r\n")}})
	var lines strings.Builder
	for _, c := range []struct {
		name, token string
		source      types.NamespacedName
	}{
		{name: "least"}, {"every field", token, fleet}, {"another token", "f" + token, fleet},
		{"another source", token, types.NamespacedName{Namespace: "team", Name: "other"}},
	} {
		_, _ = fmt.Fprintf(&lines, "%s: %s\n", c.name, Path(c.source, c.token))
	}
	golden.Equal(t, "paths.txt", []byte(lines.String()))
}
