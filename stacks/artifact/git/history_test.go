package git

import (
	"strings"
	"testing"

	"github.com/ksctl/gitops/e2e/cluster/gitserver"
)

func TestHistoryRewritten(t *testing.T) {
	s, repo := newRepo(t)
	var line []string
	for _, body := range []string{"1", "2", "3", "4"} {
		line = append(line, commit(t, repo, map[string]string{"a": body}))
	}
	amended := commit(t, repo, map[string]string{"a": "amended"}, gitserver.OnBranch("amended"),
		gitserver.Onto(line[2]))
	other := commit(t, repo, map[string]string{"a": "other"}, gitserver.OnBranch("other"), gitserver.Orphan())
	key, err := gitserver.NewKey("")
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.ServeSSH(key)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	for kind, at := range map[string]Repository{
		"HTTP": {URL: repo.URL()},
		"SSH":  {URL: d.URL(repo), Access: Access{Identity: key.Private, KnownHosts: []byte(d.KnownHosts())}},
	} {
		r, err := newClient(t, Options{}).List(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			from, to string
			want     bool
		}{
			"child":                           {line[2], line[3], false},
			"descendant":                      {line[0], line[3], false},
			"ancestor":                        {line[3], line[2], true},
			"amended":                         {line[3], amended, true},
			"amended, from the common parent": {line[2], amended, false},
			"another history":                 {line[3], other, true},
			"unknown old commit":              {strings.Repeat("1", 40), line[3], true},
			"invalid old commit":              {"x", line[3], false},
		} {
			if c.to != line[3] && c.to != amended && c.to != other {
				if err := repo.SetBranch(t.Context(), "back", c.to); err != nil {
					t.Fatal(err)
				}
			}
			got, err := r.HistoryRewritten(t.Context(), c.from, c.to)
			if err != nil || got != c.want {
				t.Errorf("%s, %s: %v %v, want %v", kind, name, got, err, c.want)
			}
		}
	}
}
