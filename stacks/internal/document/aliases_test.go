package document

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckAliasExpansion(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i, i,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	for name, tc := range map[string]struct {
		data string
		ok   bool
	}{
		"alias bomb":                        {data: bomb.String()},
		"alias bomb in the second document": {data: "a: b\n---\n" + bomb.String()},
		"alias that contains itself":        {data: "a: &a [*a]\n"},
		"small aliases":                     {data: "a: &a {b: c}\nd: *a\ne: *a\n", ok: true},
		"not YAML":                          {data: "#!/bin/sh\nx=& *y\n\t: [", ok: true},
		"binary":                            {data: "\xff\xfe\x00", ok: true},
	} {
		err := CheckAliasExpansion("f.yaml", []byte(tc.data))
		if (err == nil) != tc.ok {
			t.Errorf("%s: got %v", name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "f.yaml:") {
			t.Errorf("%s: %v does not name the file and a line", name, err)
		}
	}
}
