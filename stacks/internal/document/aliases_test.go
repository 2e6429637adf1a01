package document

import (
	"fmt"
	"strings"
	"testing"
)

func TestBounded(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	for name, tc := range map[string]struct {
		data string
		ok   bool
	}{
		"a bomb":                  {data: bomb.String()},
		"a bomb behind the first": {data: "a: b\n---\n" + bomb.String()},
		"an alias of itself":      {data: "a: &a [*a]\n"},
		"honest aliases":          {data: "a: &a {b: c}\nd: *a\ne: *a\n", ok: true},
		"no YAML":                 {data: "#!/bin/sh\nx=& *y\n\t: [", ok: true},
		"binary":                  {data: "\xff\xfe\x00", ok: true},
	} {
		err := Bounded("f.yaml", []byte(tc.data))
		if (err == nil) != tc.ok {
			t.Errorf("%s: got %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "f.yaml:") {
			t.Errorf("%s: %v does not name the file and a line", name, err)
		}
	}
}
