package workerd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/internal/workers/workerd"
)

// executable writes a program that runs a shell command.
func executable(t *testing.T, command string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+command+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckRedactsSecret(t *testing.T) {
	for name, tc := range map[string]struct{ output, want string }{
		"value":       {"Uncaught Error: key abcd-efgh is refused", "Uncaught Error: key *** is refused"},
		"longer one":  {"Uncaught Error: abcd-efgh-ijkl", "Uncaught Error: ***"},
		"first line":  {"Uncaught Error: BEGIN KEY\n9f8e", "Uncaught Error: ***"},
		"short value": {"Uncaught Error: no", "Uncaught Error: no"},
		"cut later": {"Uncaught Error: " + strings.Repeat("x", 480) + "abcd-efgh",
			"Uncaught Error: " + strings.Repeat("x", 480) + "***"},
		"long value": {"Uncaught Error: " + strings.Repeat("s", 100<<10), "Uncaught Error: ***"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "output"), "service a: "+tc.output+"\n")
			program := executable(t, fmt.Sprintf("cat %s >&2; exit 1", filepath.Join(dir, "output")))
			err := workerd.Check(t.Context(), program, workerd.Worker{Name: "a", Source: "export default {};"},
				[]string{"SECRET_0=abcd-efgh", "SECRET_1=abcd-efgh-ijkl\n", "SECRET_2=no", "SECRET_3=",
					"SECRET_4=BEGIN KEY\n9f8e\n", "SECRET_5=" + strings.Repeat("s", 100<<10)})
			refused, ok := errors.AsType[*workerd.LoadError](err)
			if !ok || refused.Message != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
