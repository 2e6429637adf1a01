package codec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/sops"
)

func testdata(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Files of the program sops are read: see testdata/README.md.
func TestFilesOfTheProgram(t *testing.T) {
	a, c := testdata(t, "a.agekey"), testdata(t, "c.agekey")
	for name, keys := range map[string][]string{
		"sops.yaml": {a}, "sops.json": {a}, "sops.env": {a}, "sops.ini": {a}, "sops.txt": {a},
		"regex.yaml": {a}, "maconly.yaml": {a}, "comments.yaml": {a}, "uncomments.yaml": {a},
		"shamir.yaml": {a, c}, "shamir.env": {c, a}, "shamir.ini": {a, c}, "shamir.json": {a, c},
	} {
		t.Run(name, func(t *testing.T) {
			f := sops.FormatOf(name)
			file := []byte(testdata(t, name))
			if !sops.Encrypted(file, f) {
				t.Error("it is not told that it is encrypted")
			}
			got := decrypts(t, file, f, keysOf(t, "a.agekey", strings.Join(keys, "\n")), Options{})
			if strings.Contains(got, "ENC[") {
				t.Errorf("something is still encrypted:\n%s", got)
			}
			if f == sops.INI {
				// The program drops what follows a value, as a comment above it.
				got = strings.Join(strings.Fields(got), " ")
				for _, want := range []string{"top = 1", "; about the section [first] ; about a key user = me", "password = hunter2", "quoted = \"a b \"", "[second]", "\"\"\"a b\"\"\""} {
					if !strings.Contains(got, want) && !strings.Contains(got, strings.ReplaceAll(want, `"`, "")) {
						t.Errorf("%q is not in\n%s", want, got)
					}
				}
				return
			}
			alike(t, f, got, testdata(t, "plain"+filepath.Ext(name)))
			if f != sops.YAML {
				return
			}
			for _, line := range strings.Split(testdata(t, "plain.yaml"), "\n") {
				if _, comment, ok := strings.Cut(line, "#"); ok && !strings.Contains(got, "#"+comment) {
					t.Errorf("the comment %q is not in\n%s", comment, got)
				}
			}
		})
	}
}
