package codec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/sops"
)

func readTestdata(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Decrypt reads files that the program sops wrote: see testdata/README.md.
func TestDecryptFilesOfSOPSProgram(t *testing.T) {
	a, c := readTestdata(t, "a.agekey"), readTestdata(t, "c.agekey")
	for name, keys := range map[string][]string{
		"sops.yaml": {a}, "sops.json": {a}, "sops.env": {a}, "sops.ini": {a}, "sops.txt": {a},
		"regex.yaml": {a}, "maconly.yaml": {a}, "comments.yaml": {a}, "uncomments.yaml": {a},
		"shamir.yaml": {a, c}, "shamir.env": {c, a}, "shamir.ini": {a, c}, "shamir.json": {a, c},
	} {
		t.Run(name, func(t *testing.T) {
			f := sops.FormatOf(name)
			file := []byte(readTestdata(t, name))
			if !sops.IsEncrypted(file, f) {
				t.Error("the file is not detected as encrypted")
			}
			got := mustDecrypt(t, file, f, mustKeys(t, "a.agekey", strings.Join(keys, "\n")), defaultOptions())
			if strings.Contains(got, "ENC[") {
				t.Errorf("a value is still encrypted:\n%s", got)
			}
			if f == sops.INI {
				// The program moves a comment after a value to the line above it.
				got = strings.Join(strings.Fields(got), " ")
				for _, want := range []string{"top = 1", "; about the section [first] ; about a key user = me",
					"password = hunter2", "quoted = \"a b \"", "[second]", "\"\"\"a b\"\"\""} {
					if !strings.Contains(got, want) && !strings.Contains(got, strings.ReplaceAll(want, `"`, "")) {
						t.Errorf("want %q in\n%s", want, got)
					}
				}
				return
			}
			assertEquivalent(t, f, got, readTestdata(t, "plain"+filepath.Ext(name)))
			if f != sops.YAML {
				return
			}
			for _, line := range strings.Split(readTestdata(t, "plain.yaml"), "\n") {
				if _, comment, ok := strings.Cut(line, "#"); ok && !strings.Contains(got, "#"+comment) {
					t.Errorf("want the comment %q in\n%s", comment, got)
				}
			}
		})
	}
}
