package flaky

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFlaky passes at its second attempt.
func TestFlaky(t *testing.T) {
	marker := filepath.Join(os.Getenv("TESTRUN_FIXTURE"), "flaky")
	if _, err := os.Stat(marker); err != nil {
		_ = os.WriteFile(marker, nil, 0o600)
		t.Error("the first attempt fails")
	}
}

func TestSkipped(t *testing.T) { t.Skip("no such machine") }
