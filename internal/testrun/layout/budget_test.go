package layout

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestReadBudgets(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	for text, want := range map[string]map[string]Budget{
		"| Package | Wall | CPU |\n|---|---|---|\n| `e2e/long` | 90 | 1 |\n| `short` | 2 | 3 |\n": {"e2e/long": {90, 1},
			"short": {2, 3}},
		"no table\n": nil,
	} {
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadBudgets(page)
		if (err == nil) != (want != nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
}
