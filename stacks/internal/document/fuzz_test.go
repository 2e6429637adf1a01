package document

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks/problem"
)

// FuzzValue decodes arbitrary files. The result is either values that JSON supports, or an error
// with the file and a line in it.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{
		"a: 1\n---\nb: [x, 2.5, yes, ~]\n", "a: &a [*a]\n", "a: &a {b: 1}\nc: {<<: *a, <<: [*a, {d: 2}]}\n",
		"? [a]\n: b\n", "1: a\ntrue: b\n",
		"a: 0x10\nb: 0o17\nc: 1e400\nd: .inf\ne: 9223372036854775808\n", "a: !!binary aGk=\nb: !!int x\n", "\xff",
		"a: 1\na: 2\n", "%YAML 9.9\n---\n", "a: |+\n  x\n\n...\n", "{\"a\": [1,]}", "a: 2020-01-01\n",
		"x: &x [1,1]\ny: &y [*x,*x]\nz: [*y,*y]\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := Parse("f.yaml", data)
		checkLocated(t, data, err)
		for _, d := range docs {
			for _, dialect := range []Dialect{Kubectl, Kustomize} {
				v, err := dialect.Value("f.yaml", d.Root)
				checkLocated(t, data, err)
				if err != nil {
					continue
				}
				if _, err := json.Marshal(v); err != nil {
					t.Fatalf("%v: %v", v, err)
				}
			}
		}
		checkLocated(t, data, CheckAliasExpansion("f.yaml", data))
	})
}

func checkLocated(t *testing.T, data []byte, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var p *problem.Error
	if !errors.As(err, &p) || p.File != "f.yaml" || p.Message == "" || p.Line < 0 ||
		p.Line > strings.Count(string(data), "\n")+len(data)+1 {
		t.Fatalf("%T: %v", err, err)
	}
}
