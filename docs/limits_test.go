package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

// docs/limits.md lists every flag that sets a limit, and no unknown flag.
func TestEveryLimitFlagIsListed(t *testing.T) {
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
		t.Fatal("found no flags in docs/controller-flags.md")
	}
	for _, m := range flag.FindAllStringSubmatch(limits, -1) {
		if !all[m[1]] {
			t.Errorf("docs/limits.md lists %s, which does not exist", m[1])
		}
	}
}
