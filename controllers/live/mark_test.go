package live

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/stacks"
)

func TestMarkRoundTrip(t *testing.T) {
	for _, m := range []Mark{
		{Owner: "prod/local/KsctlInstall/apps/monitoring", ID: "apps_web_apps_Deployment"},
		{Owner: "prod/local/KsctlInstall/apps/x",
			ID: stacks.Ref{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "a|b:c"}.ID()},
	} {
		got, err := ParseMark(m.String())
		if err != nil || got != m {
			t.Errorf("ParseMark(%q) = %+v, %v; want %+v", m.String(), got, err, m)
		}
	}
}

func TestParseMarkRejectsInvalid(t *testing.T) {
	for _, s := range []string{"", "|", "owner", "owner|", "|id", strings.Repeat("x", 10_000)} {
		if m, err := ParseMark(s); err == nil {
			t.Errorf("ParseMark(%.20q) = %+v, want an error", s, m)
		} else if len(err.Error()) > 300 {
			t.Errorf("ParseMark(%.20q): the error has %d bytes", s, len(err.Error()))
		}
	}
}
