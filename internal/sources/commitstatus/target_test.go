package commitstatus

import (
	"net/url"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

func TestNewTarget(t *testing.T) {
	for _, c := range []struct {
		kind          appsv1.CommitStatusType
		address, want string // empty: no repository
	}{
		{"github", "https://github.com/octo-org/fleet", "https://api.github.com/repos/octo-org/fleet/statuses/"},
		{"github", "https://github.com/octo-org/fleet.git", "https://api.github.com/repos/octo-org/fleet/statuses/"},
		{"github", "https://GitHub.com/octo-org/fleet/", "https://api.github.com/repos/octo-org/fleet/statuses/"},
		{"github", "ssh://git@github.com/octo-org/fleet.git", "https://api.github.com/repos/octo-org/fleet/statuses/"},
		{"github", "ssh://git@ssh.github.com:443/octo-org/fleet.git",
			"https://api.github.com/repos/octo-org/fleet/statuses/"},
		{"github", "https://octocorp.ghe.com/octo-org/fleet",
			"https://api.octocorp.ghe.com/repos/octo-org/fleet/statuses/"},
		{"github", "https://user:pass@github.example.com:8443/octo-org/fleet",
			"https://github.example.com:8443/api/v3/repos/octo-org/fleet/statuses/"},
		{"github", "https://github.com.example.com/octo-org/fleet",
			"https://github.com.example.com/api/v3/repos/octo-org/fleet/statuses/"},
		{"github", "https://github.com/octo-org", ""},
		{"github", "https://github.com/octo-org/fleet/tree", ""},
		{"gitlab", "https://gitlab.com/group/sub/fleet.git",
			"https://gitlab.com/api/v4/projects/group%2Fsub%2Ffleet/statuses/"},
		{"gitlab", "http://git.example.com/group/fleet",
			"http://git.example.com/api/v4/projects/group%2Ffleet/statuses/"},
		{"gitlab", "ssh://git@[2001:db8::1]:2222/group/fleet.git",
			"https://[2001:db8::1]/api/v4/projects/group%2Ffleet/statuses/"},
		{"gitlab", "https://gitlab.com/fleet", ""},
		{"gitea", "https://git.example.com/team/fleet.git",
			"https://git.example.com/api/v1/repos/team/fleet/statuses/"},
		{"gitea", "https://git.example.com/gitea/team/fleet.git",
			"https://git.example.com/gitea/api/v1/repos/team/fleet/statuses/"},
		{"gitea", "ssh://git@git.example.com:2222/team/fleet.git",
			"https://git.example.com/api/v1/repos/team/fleet/statuses/"},
		{"gitea", "https://git.example.com/a%2F..%2Fb/fleet", ""},
		{"gitea", "https://git.example.com/team/fleet?x=y#z",
			"https://git.example.com/api/v1/repos/team/fleet/statuses/"},
		{"gitea", "https://git.example.com/../fleet", ""},
		{"gitea", "https://git.example.com/team//fleet", ""},
		{"gitea", "https://git.example.com/te am/fl%3Feet",
			"https://git.example.com/api/v1/repos/te%20am/fl%3Feet/statuses/"},
		{"gitea", "https:///team/fleet", ""},
		{"gitea", "ftp://git.example.com/team/fleet", ""},
		{"gitea", "git@git.example.com:team/fleet", ""},
		{"svn", "https://git.example.com/team/fleet", ""},
	} {
		got, err := newTarget(c.kind, c.address)
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "is not the URL of a repository") ||
				strings.Contains(err.Error(), "pass") {
				t.Errorf("%s %s: got %v %v, want an error", c.kind, c.address, got, err)
			}
			continue
		}
		if err != nil || got.String() != c.want {
			t.Errorf("%s %s: got %v %v, want %s", c.kind, c.address, got, err, c.want)
		}
	}
}

// FuzzTarget: for any address, the token is only sent to its host, and only to paths of statuses.
func FuzzTarget(f *testing.F) {
	for _, a := range []string{"https://github.com/a/b", "ssh://git@h:22/a/b/c.git", "http://[::1]:1/a/b",
		"https://h/%2e%2e/b", "https://h/a%2fb/c", "https://h/a/b?c#d"} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, address string) {
		asked, perr := url.Parse(address)
		for _, kind := range []appsv1.CommitStatusType{appsv1.GitHubStatus, appsv1.GitLabStatus, appsv1.GiteaStatus} {
			target, err := newTarget(kind, address)
			if err != nil {
				continue
			}
			if perr != nil {
				t.Fatalf("%q: invalid URL, but target %s", address, target)
			}
			to, _, err := target.buildRequest(Status{Commit: one})
			u, uerr := url.Parse(to)
			if err != nil || uerr != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				t.Fatalf("%q: %s %v %v", address, to, err, uerr)
			}
			host, want := strings.ToLower(u.Hostname()), strings.ToLower(asked.Hostname())
			known := host == "api.github.com" && strings.HasSuffix(want, "github.com") || host == "api."+want &&
				strings.HasSuffix(want, ".ghe.com")
			if host != want && (kind != appsv1.GitHubStatus || !known) {
				t.Fatalf("%q: the token is sent to %s", address, u.Host)
			}
			if p := u.EscapedPath(); strings.Contains(p, "/../") || strings.Contains(p, "/./") ||
				!strings.HasSuffix(p, "/statuses/"+one) {
				t.Fatalf("%q: %s", address, p)
			}
		}
	})
}
