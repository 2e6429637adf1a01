package storage

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/internal/golden"
)

// TestGoldenPaths: statuses contain these paths and URLs, and the controller finds existing files
// by them.
func TestGoldenPaths(t *testing.T) {
	s := &Storage{advertisedAddr: "storage.example.com:9090"}
	var lines strings.Builder
	for _, owner := range []types.NamespacedName{{Namespace: "team", Name: "fleet"}, {Namespace: "n", Name: "a.b-c"}} {
		name, err := s.Space("ksctlsource").PathOf(owner, "sha256:"+strings.Repeat("0123456789abcdef", 4))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(&lines, "%s: %s %s\n", owner, name, s.URL(name))
	}
	golden.Equal(t, "paths.txt", []byte(lines.String()))
}
