package git

import (
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

func TestHighestTag(t *testing.T) {
	for name, c := range map[string]struct {
		tags []string
		in   string
		want string
		is   Reason
		says string
	}{
		"the highest":              {tags: []string{"v1.9.0", "v1.10.0", "v1.2.0"}, in: "*", want: "v1.10.0"},
		"the highest in the range": {tags: []string{"1.9.0", "2.0.0"}, in: "1.x", want: "1.9.0"},
		"two bounds": {tags: []string{"1.9.0", "1.5.0", "2.0.0"}, in: ">=1.2.0 <1.9.0",
			want: "1.5.0"},
		"prerelease excluded": {tags: []string{"1.9.0", "1.10.0-rc.1"}, in: ">=1.0.0", want: "1.9.0"},
		"prerelease included": {tags: []string{"1.9.0", "1.10.0-rc.1"}, in: ">=1.0.0-0",
			want: "1.10.0-rc.1"},
		"other tags": {tags: []string{"latest", "v1", "v1.2", "01.2.3", "1.0.0", "x1.2.3"},
			in: "*", want: "1.0.0"},
		"the same version twice":           {tags: []string{"1.0.0", "v1.0.0"}, in: "*", want: "v1.0.0"},
		"same version with build metadata": {tags: []string{"1.0.0+b", "1.0.0+a"}, in: "*", want: "1.0.0+b"},
		"none":                             {in: "*", is: TagNotFound, says: "push one"},
		"none in the range":                {tags: []string{"v1.0.0"}, in: ">1", is: TagNotFound, says: `"v1.0.0"`},
		"invalid range": {tags: []string{"v1.0.0"}, in: "latest", is: SemVerInvalid,
			says: `"latest"`},
		"a long name": {tags: []string{"1.0.0-" + strings.Repeat("a", 300)}, in: "*",
			is: TagNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Remote{endpoint: endpoint{maskedURL: "https://x"},
				refs: map[string]plumbing.Hash{branchPrefix + "9.9.9": {1}}, peeled: map[string]plumbing.Hash{}}
			for _, tag := range c.tags {
				r.refs[tagPrefix+tag] = plumbing.Hash{1}
			}
			got, err := r.HighestTag(c.in)
			if got.Name != c.want || reasonOf(t, err) != c.is ||
				(err != nil && !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %q %v, want %q %s", got.Name, err, c.want, c.is)
			}
		})
	}
}

func TestTagLightweightAndAnnotated(t *testing.T) {
	s, repo := newRepo(t)
	id := commit(t, repo, map[string]string{"a": "a"})
	if err := repo.SetTag(t.Context(), "plain", id); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Git(t.Context(), repo.Dir(), "-c", "user.name=e2e", "-c", "user.email=e2e@example.com", "tag", "-a",
		"-m", "x", "annotated", id); err != nil {
		t.Fatal(err)
	}
	r, err := newClient(t, Options{}).List(t.Context(), Repository{URL: repo.URL()})
	if err != nil {
		t.Fatal(err)
	}
	for name, annotated := range map[string]bool{"plain": false, "annotated": true} {
		got, err := r.Tag(name)
		if err != nil || got.Name != name || got.Commit != id || (got.Object != "") != annotated || got.Object == id {
			t.Errorf("%s: got %+v %v", name, got, err)
		}
	}
	_, err = r.Tag("plane")
	if got := reasonOf(t, err); got != TagNotFound || !strings.Contains(err.Error(), `"plain"`) {
		t.Errorf("reason %q: %v", got, err)
	}
}
