package kind

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A stack that does not fit into a Secret is refused before any request.
func TestKeepRefusesLargeStacks(t *testing.T) {
	folder := t.TempDir()
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content) // it never fails
	if err := os.WriteFile(filepath.Join(folder, "large.bin"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := (&Revisions{}).keep(t.Context(), "shop", "shop", folder, "main@sha1:1")
	if err == nil || !strings.Contains(err.Error(), `the compressed folder of stack "shop" has 102`) {
		t.Errorf("got %v", err)
	}
}
