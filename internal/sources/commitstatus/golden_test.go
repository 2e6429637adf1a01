package commitstatus

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/internal/golden"
)

// TestGoldenContexts: a Git server keeps one status per context. With another context, the old
// status of a commit would never change again, and branch protection would wait for it.
func TestGoldenContexts(t *testing.T) {
	in, src := install("True", "Succeeded", "applied"), source(appsv1.GitHubStatus)
	contexts := []string{}
	add := func(name string) {
		t.Helper()
		got, ok := StatusOf(in, src)
		if !ok {
			t.Fatalf("%s: no status", name)
		}
		contexts = append(contexts, name+": "+got.Context)
	}
	add("by the uid of the source")
	src.Spec.CommitStatus.Cluster = "prod-eu"
	add("by the cluster")
	in.Namespace = "other"
	add("of another namespace")
	in.Namespace, in.Name = strings.Repeat("n", 63), strings.Repeat("i", 253)
	add("longer than 255 bytes")
	src.Spec.CommitStatus.Cluster = "prod-us"
	add("longer than 255 bytes, in another cluster")
	golden.Equal(t, "contexts.txt", []byte(strings.Join(contexts, "\n")+"\n"))
}

// TestGoldenRequests: Git servers receive these requests.
func TestGoldenRequests(t *testing.T) {
	s := Status{Commit: one, Context: "ksctlinstall/team/web/prod-eu", State: Pending,
		Description: "a <description>"}
	golden.Complete(t, s)
	var lines strings.Builder
	for _, c := range []struct {
		kind    appsv1.CommitStatusType
		address string
	}{
		{appsv1.GitHubStatus, "https://github.com/team/fleet.git"},
		{appsv1.GitHubStatus, "https://prod.ghe.com/team/fleet"},
		{appsv1.GitHubStatus, "https://git.example.com/team/fleet"},
		{appsv1.GitLabStatus, "ssh://git@git.example.com:2222/group/sub/fleet.git"},
		{appsv1.GiteaStatus, "https://git.example.com/below/team/fleet"},
	} {
		target, err := newTarget(c.kind, c.address)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []State{Pending, Success, Failure, Canceled} {
			s.State = state
			address, body, err := target.buildRequest(s)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = fmt.Fprintf(&lines, "%s %s: %s %s\n", c.kind, c.address, address, body)
		}
	}
	golden.Equal(t, "requests.txt", []byte(lines.String()))
}
