package webhook

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
)

// recordedBody returns a recorded body of a server from testdata.
func recordedBody(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	form := "payload=" + url.QueryEscape(string(recordedBody(t, "github.json")))
	for name, c := range map[string]struct {
		kind         appsv1.WebhookType
		header       []string
		body         string
		ref          string
		repositories []string
	}{
		"github": {appsv1.GitHubWebhook, []string{"X-GitHub-Event", "push"}, string(recordedBody(t, "github.json")),
			"refs/heads/main", []string{"octo-org/fleet"}},
		"github, as a form": {appsv1.GitHubWebhook,
			[]string{"X-GitHub-Event", "push", "Content-Type", "application/x-www-form-urlencoded"}, form,
			"refs/heads/main", []string{"octo-org/fleet"}},
		"gitea": {appsv1.GiteaWebhook, []string{"X-Gitea-Event", "push"},
			string(recordedBody(t, "gitea.json")), "refs/heads/develop", []string{"gitea/webhooks"}},
		"gitlab": {appsv1.GitLabWebhook, []string{"X-Gitlab-Event", "Push Hook"},
			string(recordedBody(t, "gitlab.json")), "refs/heads/master",
			[]string{"mike/diaspora", "gitlab/mike/diaspora"}},
		"gitlab, a tag": {appsv1.GitLabWebhook, nil,
			`{"object_kind":"tag_push","ref":"refs/tags/v1","project":{"path_with_namespace":"a/b"}}`, "refs/tags/v1",
			[]string{"a/b"}},
		"gitlab, a system hook": {appsv1.GitLabWebhook, nil,
			`{"event_name":"push","ref":"refs/heads/x","project":{"path_with_namespace":"a/b"}}`, "refs/heads/x",
			[]string{"a/b"}},
		"generic, blank body":      {appsv1.GenericWebhook, nil, " \n", "", nil},
		"generic, an empty object": {appsv1.GenericHMACWebhook, nil, "{}", "", nil},
		"generic, a URL": {appsv1.GenericHMACWebhook, nil,
			`{"repository":"ssh://git@git.example.com:22/Team/Fleet.git","ref":"refs/tags/v1.2.3","after":"x"}`,
			"refs/tags/v1.2.3", []string{"team/fleet"}},
		"generic, the body of GitHub": {appsv1.GenericWebhook, nil, string(recordedBody(t, "github.json")),
			"refs/heads/main", []string{"octo-org/fleet"}},
	} {
		p, err := parse(c.kind, headers(c.header...), []byte(c.body))
		var paths []string
		for _, address := range p.repositories {
			paths = append(paths, repositoryPath(address))
		}
		if err != nil || p.ref != c.ref || !slices.Equal(paths, c.repositories) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestParseReturnsErrNoPushForOtherEvents(t *testing.T) {
	for name, c := range map[string]struct {
		kind   appsv1.WebhookType
		header []string
		body   string
	}{
		"github's ping": {appsv1.GitHubWebhook, []string{"X-GitHub-Event", "ping"}, `{"zen":"x"}`},
		"github's issue": {appsv1.GitHubWebhook, []string{"X-GitHub-Event", "issues"},
			`{"ref":"refs/heads/main"}`},
		"github without an event name": {appsv1.GitHubWebhook, nil, `{"ref":"refs/heads/main"}`},
		"gitea's release": {appsv1.GiteaWebhook,
			[]string{"X-Gitea-Event", "release", "X-GitHub-Event", "push"}, `{}`},
		"gitlab's pipeline": {appsv1.GitLabWebhook, []string{"X-Gitlab-Event", "Push Hook"},
			`{"object_kind":"pipeline","ref":"main"}`},
	} {
		if p, err := parse(c.kind, headers(c.header...), []byte(c.body)); !errors.Is(err, errNoPush) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestParseRejectsInvalidBodies(t *testing.T) {
	push := []string{"X-GitHub-Event", "push"}
	for name, body := range map[string]string{
		"nothing": "", "no JSON": "ref=x", "a list": "[]", "a number for a ref": `{"ref":1}`, "two documents": `{}{}`,
		"too deep": strings.Repeat(`{"repository":`, 20_000),
		"no ref":   `{"repository":{"full_name":"a/b"}}`, "no repository": `{"ref":"refs/heads/main"}`,
		"a list for a repository": `{"ref":"x","repository":[]}`,
	} {
		if p, err := parse(appsv1.GitHubWebhook, headers(push...), []byte(body)); err == nil ||
			errors.Is(err, errNoPush) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestRepositoryPath(t *testing.T) {
	for address, want := range map[string]string{
		"https://git.example.com/Team/fleet.git":        "team/fleet",
		"https://user@git.example.com:8443/team/fleet/": "team/fleet",
		"ssh://git@git.example.com:2222/team/fleet.git": "team/fleet",
		"git@git.example.com:team/fleet.git":            "team/fleet", "team/fleet": "team/fleet",
		"https://example.com/gitlab/a/b/c.git":           "gitlab/a/b/c",
		"oci://registry.example.com:5000/platform/fleet": "platform/fleet", "": "", "https://example.com": "",
		"https://example.com/%zz": "example.com/%zz",
	} {
		if got := repositoryPath(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// Names of repositories with and without a scheme, a port and a tag.
func TestSameRepository(t *testing.T) {
	const registry, port, git = "oci://registry.example.com/platform/fleet", "oci://registry:5000/platform/fleet",
		"https://git.example.com:8443/Platform/fleet.git"
	for _, c := range []struct {
		own, pushed string
		want        bool
	}{
		{registry, "registry.example.com/platform/fleet", true},
		{registry, "registry.example.com/platform/fleet:1.2.3", true},
		{registry, "oci://registry.example.com/platform/fleet:1.2.3", true}, {registry, "platform/fleet:latest", true},
		{registry, "registry.example.com/platform/fleet@sha256:1", true},
		{registry, "Registry.example.com/platform/fleet", true},
		{registry, "registry.example.com/platform/other", false},
		{registry, "elsewhere.example.com/platform/fleet", false}, {registry, "fleet", false},
		{port, "registry:5000/platform/fleet", true}, {port, "registry/platform/fleet", true},
		{port, "registry:5000/platform/fleet:1.2.3", true},
		{port, "registry:5001/platform/fleet", false}, {port, "registry:5000/fleet", false},
		{git, "git.example.com/platform/fleet", true}, {git, "git.example.com:8443/platform/fleet.git", true},
		{git, "git@git.example.com:platform/fleet", true},
		{git, "platform/fleet", true}, {git, "platform/fleet:1", false},
		{git, "git.example.com/platform/fleets", false},
	} {
		if got := sameRepository(c.own, c.pushed); got != c.want {
			t.Errorf("source %s, sender %s: %v", c.own, c.pushed, got)
		}
	}
}

func TestAffects(t *testing.T) {
	const commit = "1111111111111111111111111111111111111111"
	gitAt := func(ref *appsv1.GitRef) appsv1.KsctlSourceSpec {
		return appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: "https://git.example.com/Team/fleet.git", Ref: ref}}
	}
	ociAt := func(ref *appsv1.OCIRef) appsv1.KsctlSourceSpec {
		return appsv1.KsctlSourceSpec{OCI: &appsv1.OCISource{URL: "oci://registry.example.com/platform/fleet",
			Ref: ref}}
	}
	here, there := []string{"x/y", "team/fleet"}, []string{"other/fleet"}
	for name, c := range map[string]struct {
		spec     appsv1.KsctlSourceSpec
		revision string
		push     push
		want     bool
	}{
		"the default branch":                   {gitAt(nil), "", push{here, "refs/heads/main"}, true},
		"the default branch, {}":               {gitAt(&appsv1.GitRef{}), "", push{here, "refs/heads/main"}, true},
		"another branch":                       {gitAt(nil), "", push{here, "refs/heads/maintenance"}, false},
		"a branch with main as prefix":         {gitAt(nil), "", push{here, "refs/heads/main/x"}, false},
		"a tag called main":                    {gitAt(nil), "", push{here, "refs/tags/main"}, false},
		"a ref that is neither branch nor tag": {gitAt(nil), "", push{here, "refs/notes/main"}, false},
		"another repository":                   {gitAt(nil), "", push{there, "refs/heads/main"}, false},
		"any repository":                       {gitAt(nil), "", push{nil, "refs/heads/main"}, true},
		"no repository and no ref":             {gitAt(nil), "", push{}, true},
		"a short branch name":                  {gitAt(nil), "", push{nil, "main"}, true},
		"the branch of the spec": {gitAt(&appsv1.GitRef{Branch: "release/1"}), "",
			push{here, "refs/heads/release/1"}, true},
		"main, for another branch": {gitAt(&appsv1.GitRef{Branch: "release/1"}), "",
			push{here, "refs/heads/main"}, false},
		"the tag": {gitAt(&appsv1.GitRef{Tag: "v1"}), "", push{here, "refs/tags/v1"},
			true},
		"a branch named as the tag": {gitAt(&appsv1.GitRef{Tag: "v1"}), "", push{here, "refs/heads/v1"},
			false},
		"another tag": {gitAt(&appsv1.GitRef{Tag: "v1"}), "", push{here, "refs/tags/v10"},
			false},
		"a version in the range": {gitAt(&appsv1.GitRef{SemVer: "1.x"}), "",
			push{here, "refs/tags/v1.10.0"}, true},
		"a version out of the range": {gitAt(&appsv1.GitRef{SemVer: "1.x"}), "",
			push{here, "refs/tags/v2.0.0"}, false},
		"a prerelease": {gitAt(&appsv1.GitRef{SemVer: "1.x"}), "",
			push{here, "refs/tags/v1.11.0-rc.1"}, false},
		"a tag that is not a version": {gitAt(&appsv1.GitRef{SemVer: "1.x"}), "",
			push{here, "refs/tags/nightly"}, false},
		"a branch, for a range": {gitAt(&appsv1.GitRef{SemVer: ">=0"}), "",
			push{here, "refs/heads/1.0.0"}, false},
		"an invalid range": {gitAt(&appsv1.GitRef{SemVer: "about 1"}), "",
			push{here, "refs/tags/1.0.0"}, false},
		"a commit that is not fetched yet": {gitAt(&appsv1.GitRef{Commit: commit}), "main@sha1:2",
			push{here, "refs/heads/x"}, true},
		"a commit that is already fetched": {gitAt(&appsv1.GitRef{Commit: commit}), "sha1:" + commit,
			push{here, "refs/heads/x"}, false},
		"a commit, another repository": {gitAt(&appsv1.GitRef{Commit: commit}), "",
			push{there, "refs/heads/x"}, false},
		"OCI, no repository and no ref": {ociAt(nil), "", push{}, true},
		"OCI, default tag":              {ociAt(nil), "", push{[]string{"platform/fleet"}, "latest"}, true},
		"OCI, another tag":              {ociAt(nil), "", push{nil, "1.2.3"}, false},
		"OCI, a version in the range":   {ociAt(&appsv1.OCIRef{SemVer: "1.x"}), "", push{nil, "1.2.3"}, true},
		"OCI, another repository":       {ociAt(nil), "", push{[]string{"platform/other"}, "latest"}, false},
		"OCI, a digest that is already fetched": {ociAt(&appsv1.OCIRef{Digest: "sha256:1"}), "sha256:1", push{nil, "1"},
			false},
		"neither Git nor OCI": {appsv1.KsctlSourceSpec{}, "", push{here, "refs/heads/main"}, false},
	} {
		source := &appsv1.KsctlSource{Spec: c.spec}
		if c.revision != "" {
			source.Status.Artifact = &fluxmeta.Artifact{Revision: c.revision}
		}
		if got := affects(source, c.push); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// FuzzParse: any body is parsed or rejected. The result is bounded by the size of the body, and no
// repository has an empty name.
func FuzzParse(f *testing.F) {
	kinds := []appsv1.WebhookType{appsv1.GitHubWebhook, appsv1.GitLabWebhook, appsv1.GiteaWebhook,
		appsv1.GenericWebhook, appsv1.GenericHMACWebhook}
	for i, name := range []string{"github.json", "gitlab.json", "gitea.json", "github.json", "github.json"} {
		f.Add(uint8(i), "push", "application/json", recordedBody(f, name))
	}
	f.Add(uint8(0), "push", "application/x-www-form-urlencoded",
		[]byte("payload="+url.QueryEscape(`{"ref":"refs/heads/main","repository":{"full_name":"a/b"}}`)))
	f.Add(uint8(4), "", "", []byte(`{"repository":"git@h:a/b.git","ref":"refs/tags/v1"}`))
	f.Add(uint8(3), "", "", []byte(``))
	f.Add(uint8(0), "push", "", []byte(`{"repository":{"repository":"x"},"ref":null}`))
	f.Fuzz(func(t *testing.T, kind uint8, event, media string, body []byte) {
		k := kinds[int(kind)%len(kinds)]
		header := headers("X-GitHub-Event", event, "X-Gitea-Event", event, "Content-Type", media)
		p, err := parse(k, header, body)
		if err != nil {
			if p.ref != "" || p.repositories != nil {
				t.Errorf("error, but the push is set: %+v", p)
			}
			return
		}
		// JSON escapes make text shorter, lower case may make it longer.
		if len(p.ref) > 3*len(body) || len(p.repositories) > 9 {
			t.Errorf("%d bytes were parsed to %+v", len(body), p)
		}
		for _, name := range p.repositories {
			if name == "" {
				t.Error("a repository with an empty name matches every source")
			}
		}
		for _, ref := range []*appsv1.GitRef{nil, {Tag: "v1"}, {SemVer: "1.x"}, {Commit: strings.Repeat("1", 40)}} {
			affects(&appsv1.KsctlSource{Spec: appsv1.KsctlSourceSpec{Git: &appsv1.GitSource{URL: "https://h/a/b",
				Ref: ref}}}, p)
		}
	})
}
