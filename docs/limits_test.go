package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestEveryBoundIsListed: a flag that bounds something stands in docs/limits.md, and
// no other does.
func TestEveryBoundIsListed(t *testing.T) {
	flag, limits := regexp.MustCompile("`(--[a-z-]+)`"), read(t, "docs/limits.md")
	all := map[string]bool{}
	for _, m := range flag.FindAllStringSubmatch(read(t, "docs/controller-flags.md"), -1) {
		all[m[1]] = true
		bounds := regexp.MustCompile(`-max-|-bytes$|-timeout$|^--render-`).MatchString(m[1])
		if bounds && !strings.Contains(limits, "`"+m[1]+"`") {
			t.Errorf("docs/limits.md does not list %s", m[1])
		}
	}
	if len(all) == 0 {
		t.Fatal("no flags were found")
	}
	for _, m := range flag.FindAllStringSubmatch(limits, -1) {
		if !all[m[1]] {
			t.Errorf("docs/limits.md names %s, which is no flag", m[1])
		}
	}
}
